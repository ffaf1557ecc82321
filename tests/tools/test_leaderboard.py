"""The board shows what the receipts say, in a real browser too."""

import csv
import json
import os
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from lies import sealed_again

from rood import config
from rood.evaluation.store import read_rows
from rood.receipts.entry import SEAL, ReceiptEntry
from rood.receipts.receipt import Receipt
from rood.receipts.rescoring import Given
from rood.receipts.verify import verify
from tools import leaderboard

ENTRIES = sorted(p for p in (leaderboard.FOLDER / "entries").iterdir() if p.is_dir())
WHOLE = [p for p in ENTRIES if p.name.startswith("digits-")]  # with their images
CHROMIUM = os.environ.get("ROOD_CHROMIUM") or shutil.which("chromium")
ARGUMENTS = "--headless=new --no-sandbox --disable-gpu --no-first-run --disable-sync"
MOST = 20 << 20  # bytes of all entries
SMALL = 500_000  # parameters of networks that CI scores again; of others it takes minutes


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """A board of two entries."""
    folder = tmp_path_factory.mktemp("few")
    for path in WHOLE[:2]:
        shutil.copytree(path, folder / "entries" / path.name)
        if (check := path.parent / f"{path.name}.check.json").exists():
            shutil.copy(check, folder / "entries")
    return folder


@pytest.fixture(scope="module")
def site(few, tmp_path_factory):
    out = tmp_path_factory.mktemp("site") / "board"
    leaderboard.build(out, few, reports=False)
    return out


def test_every_number_of_the_board_is_a_row_of_its_receipt(few, site):
    values = json.loads((site / "board.json").read_text())
    assert {v["entry"] for v in values} == {p.name for p in WHOLE[:2]}
    for v in values:
        rows = [
            r.value
            for r in read_rows(few / "entries" / v["entry"])
            if (r.detector, r.metric, r.side) == (v["detector"], "auroc", "both")
            and r.scenario.endswith(f" {v['threat']}")
        ]
        assert v["both"] == min(rows)
        assert v["low"] <= v["both"] <= v["high"]
        assert v["clean"] >= v["both"]


def test_the_board_comes_as_csv_rss_and_yaml_too(site):
    values = json.loads((site / "board.json").read_text())
    with (site / "board.csv").open(newline="") as file:
        assert [float(r["both"]) for r in csv.DictReader(file)] == [v["both"] for v in values]
    items = ET.fromstring((site / "board.rss").read_text()).findall("channel/item")
    assert len(items) == len({v["entry"] for v in values})
    yaml = (site / "entries" / WHOLE[0].name / "eval_results.yaml").read_text()
    assert yaml.count("- dataset:") == 2 * sum(v["entry"] == WHOLE[0].name for v in values)


def test_a_budget_after_a_corruption_has_a_line_too(few, tmp_path):
    folder = shutil.copytree(few / "entries" / WHOLE[0].name, tmp_path / "fog")
    text = (folder / "entry.json").read_text().replace('"linf:', '"fog:3+linf:')
    card = {k: v for k, v in json.loads(text).items() if k != SEAL}
    rows = (folder / "rows.jsonl").read_text().replace(" linf:", " fog:3+linf:")
    (folder / "rows.jsonl").write_text(rows)
    sealed_again(folder, config.build(ReceiptEntry, card, "entry"))
    found = list(leaderboard.lines("fog", Receipt(folder)))
    assert {(x.norm, x.eps) for x in found} == {("fog:3+linf", e / 255) for e in (1, 8)}


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        ("npz:$ROOD_DATA/cifar10_test.npz", "cifar10_test"),
        ("share:0.8-1@npz:$ROOD_DATA/svhn.npz", "svhn, part 0.8-1"),
        ("digits:inside", "digits:inside"),
    ],
)
def test_images_are_called_as_people_call_them(spec, shown):
    assert leaderboard.readable(spec) == shown


def test_a_borrowed_name_and_the_defence_are_shown(few, tmp_path, monkeypatch):
    monkeypatch.setattr(leaderboard, "misnamed", lambda entry: list(entry.models))
    found = leaderboard.build(tmp_path / "board", few, reports=False)
    assert {(x.borrowed, x.defence) for x in found if x.entry == "digits-aloe"} == {
        (True, leaderboard.defence("digits-aloe"))
    }
    page = (tmp_path / "board" / "index.html").read_text()
    assert page.count("not the zoo") == len(found)
    assert leaderboard.defence("digits-aloe").startswith("ALOE")
    assert leaderboard.defence("masked-turned-gradient").startswith("broken")
    assert leaderboard.defence("somebody") == ""


def test_a_line_with_one_side_attacked_comes_last(few, tmp_path, monkeypatch):
    made = leaderboard.lines
    one_sided = lambda n, r: (replace(x, both=None, low=None, high=None) for x in made(n, r))
    first = WHOLE[0].name
    some = lambda n, r: one_sided(n, r) if n == first else made(n, r)
    monkeypatch.setattr(leaderboard, "lines", some)
    leaderboard.build(tmp_path / "board", few, reports=False)
    page = (tmp_path / "board" / "index.html").read_text()
    assert page.index(f"entries/{WHOLE[1].name}/") < page.index(f"entries/{first}/")


def test_the_tier_of_a_check_counts_for_that_receipt_only(few, tmp_path):
    folder = tmp_path / "entries"
    shutil.copytree(few / "entries", folder)
    first = folder / WHOLE[0].name
    leaderboard.record(first, "reattack", "2026-01-01")
    told = [x.tier for x in leaderboard.lines(first.name, Receipt(first))]
    assert set(told) == {"reattack"}
    check = folder / f"{first.name}.check.json"
    check.write_text(check.read_text().replace(Receipt(first).digest, "0" * 64))
    assert {x.tier for x in leaderboard.lines(first.name, Receipt(first))} == {"schema"}


def test_a_budget_after_a_corruption_has_a_norm_of_its_own():
    receipt = Receipt(WHOLE[0])
    through_fog = replace(receipt.entry, threats=("fog:3+linf:8/255",))
    vars(receipt)["entry"] = through_fog  # as if the property had read it
    found = list(leaderboard.lines("fog", receipt))
    assert {(x.norm, x.eps) for x in found} == {("fog:3+linf", 8 / 255)}


@pytest.fixture
def research(tmp_path):
    """A receipt of images that are not rood's to copy, and what `rood verify --json` says of it."""
    folder = shutil.copytree(WHOLE[0], tmp_path / "mine")
    entry = Receipt(folder).entry
    named = replace(entry.named, inside="npz:$ROOD_DATA/some.npz")
    sealed_again(folder, replace(entry, named=named))
    told = {"receipt": Receipt(folder).digest, "verdict": "verified", "tier": "rescore"}
    (tmp_path / "found.json").write_text(json.dumps(told))
    return folder


def test_an_entry_of_research_data_is_added_without_its_images(research, tmp_path):
    (tmp_path / "board" / "entries").mkdir(parents=True)
    found = research.parent / "found.json"
    added = leaderboard.add(research, found, "2026-01-01", tmp_path / "board")
    assert not (added / "adversarial").exists()
    assert (research / "adversarial").exists()
    (line, *_) = leaderboard.lines("mine", Receipt(added))
    assert (line.tier, line.checked) == ("rescore", "2026-01-01")
    assert [n for n, _ in leaderboard.entries(tmp_path / "board")] == ["mine"]


def test_an_entry_of_images_that_rood_ships_keeps_them(tmp_path):
    (tmp_path / "board" / "entries").mkdir(parents=True)
    added = leaderboard.add(WHOLE[0], None, "2026-01-01", tmp_path / "board")
    assert (added / "adversarial").exists()
    assert {x.tier for x in leaderboard.lines("mine", Receipt(added))} == {"schema"}


@pytest.mark.parametrize("change", [{"receipt": "0" * 64}, {"verdict": "refuted"}])
def test_the_check_of_another_receipt_or_one_that_failed_adds_nothing(research, tmp_path, change):
    (tmp_path / "board" / "entries").mkdir(parents=True)
    found = research.parent / "found.json"
    found.write_text(json.dumps(json.loads(found.read_text()) | change))
    with pytest.raises(SystemExit, match="expected that mine was verified"):
        leaderboard.add(research, found, "2026-01-01", tmp_path / "board")
    assert not list((tmp_path / "board" / "entries").iterdir())


def test_the_command_strips_and_restores(research):
    leaderboard.main(["strip", str(research)])
    assert not (research / "adversarial").exists()
    leaderboard.main(["restore", str(research), str(WHOLE[0])])
    assert (research / "adversarial").exists()
    with pytest.raises(SystemExit, match="restore RECEIPT FULL"):
        leaderboard.main(["restore", str(research), "a", "b"])


def test_a_receipt_that_lies_stops_the_build(few, tmp_path):
    shutil.copytree(few / "entries", tmp_path / "entries")
    rows = tmp_path / "entries" / WHOLE[0].name / "rows.jsonl"
    rows.write_text(rows.read_text().replace("0.9", "0.8", 1))
    with pytest.raises(SystemExit, match="has another SHA-256"):
        leaderboard.build(tmp_path / "board", tmp_path, reports=False)


def test_the_committed_entries_are_small_and_know_how_they_are_checked():
    files = [p for p in (leaderboard.FOLDER / "entries").rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) < MOST
    assert {p.suffix for p in files} <= {".json", ".jsonl", ".safetensors"}
    for path in ENTRIES:
        said = json.loads((path.parent / f"{path.name}.check.json").read_text())
        assert said["receipt"] == Receipt(path).digest


@pytest.mark.slow
@pytest.mark.parametrize("path", ENTRIES, ids=lambda p: p.name)
def test_the_committed_entries_are_scored_again(path):
    networks = Receipt(path).entry.networks
    if any(not one.zoo for one in networks):
        pytest.skip("the network is not in the zoo")
    if max(one.parameters for one in networks) > SMALL:
        pytest.skip("the network is large: rood verify leaderboard/entries/ID --tier rescore")
    found = list(verify(path, "rescore", Given(device="cpu")))
    assert "fail" not in {f.status for f in found}, found[-1]


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM:
        pytest.skip("no Chromium: install one or set ROOD_CHROMIUM")
    with playwright.sync_playwright() as p:
        found = p.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS.split())
        yield found
        found.close()


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_the_board_sorts_filters_and_fits(browser, site, width, scheme):
    wrong: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda r: r.url.startswith("file:") or wrong.append(r.url))
    page.goto((site / "index.html").as_uri())
    first = lambda: page.locator("#board tbody tr:visible td:nth-child(3)").all_inner_texts()
    assert first() == sorted(first(), reverse=True)
    page.locator("th button", has_text="both").click()
    assert first() == sorted(first())
    n = len(first())
    page.locator("select[data-filter=model]").select_option(index=1)
    assert 0 < len(first()) < n
    assert page.locator("#plot polyline").count() > 0
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
    assert dark == (scheme == "dark")
    page.locator("#board tbody tr:visible a").first.click()
    assert page.locator("h1").inner_text() in {p.name for p in WHOLE}
    context.close()
    assert wrong == []
