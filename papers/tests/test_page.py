"""The page and the tables of a reproduction."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from rood.metrics import Interval
from rood_papers.framework.cells import LOSS, Cell
from rood_papers.framework.claims import UNDECIDED, claim
from rood_papers.framework.page import (
    About,
    Shrunk,
    _figure,
    render,
    sections,
    shrinking,
    write_page,
)
from tools import reproduction

EVIL = "<script>alert(1)</script>"


def rows():
    one = Cell(experiment="toy/table1", row="MSP", column="cifar10", metric="auroc", paper=0.9)
    yield one.found(Interval(0.85, 0.8, 0.9), 100, 200, network="net", note=EVIL)
    yield Cell(**one.as_json() | {"attack": "standard", "paper": None}).not_run("no data")
    yield Cell(**one.as_json() | {"column": "cifar10 / svhn", "paper": None}).found(0.7)
    point = Cell(experiment="toy/figure1", row="K", column="x", metric="auroc", kind="point")
    for group in ("best", EVIL):
        for x in (0.0, 1.0):
            yield point.found(x / 2, x=x, group=group)
    yield claim("toy/table1", f"{EVIL} holds", True, "a 1, b 0")
    yield claim("toy/table1", "another", None, "a ?")


def test_a_line_has_both_numbers_their_difference_and_the_interval_in_per_cent():
    table, figure = sections(rows(), {"toy/table1": About("a toy", "because")})
    line = table.tables["auroc"][0]
    assert (line.paper, line.ours, line.difference) == ("90.00", "85.00", "-5.00")
    assert (line.interval, line.n, line.main) == ("80.00 to 90.00", "100 / 200", True)
    missing = table.tables["auroc"][1]
    assert (missing.ours, missing.difference, missing.note) == ("not run", "", "not run: no data")
    assert not table.tables["auroc"][2].main
    assert [c.outcome for c in table.claims] == ["holds", "not tested"]
    assert figure.panels[0].curves["best"] == [(0.0, 0.0), (1.0, 0.5)]


def test_the_page_is_one_file_that_escapes_what_it_shows(tmp_path):
    page = render(rows(), {"toy/table1": About("a toy", "because")}, tmp_path)
    body = page[: page.rindex("<script>", 0, page.index("</main>") + 20)]
    assert EVIL not in body
    assert "&lt;script&gt;alert" in body
    assert "Content-Security-Policy" in page
    assert 'src="http' not in page
    assert page == render(rows(), {"toy/table1": About("a toy", "because")}, tmp_path)


def test_the_page_needs_no_torch():
    code = "import sys, rood_papers.framework.page; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def documents(tmp_path, monkeypatch):
    """Writes rows of a toy paper and gives the pages made of them, joined."""
    monkeypatch.setattr(reproduction, "RESULTS", tmp_path)
    monkeypatch.setitem(reproduction.PAPERS, "toy", "A toy paper")

    def made(cells):
        text = "".join(json.dumps(r.as_json()) + "\n" for r in cells)
        (tmp_path / "toy.jsonl").write_text(text)
        return "\n".join(text for _, text in reproduction.pages())

    return made


def test_the_page_has_every_printed_number(tmp_path):
    page = " ".join(render(rows(), {}, tmp_path).split())
    for cell in ("90.00", "85.00", "80.00 to 90.00", "-5.00", "100 / 200", "no data"):
        assert cell in page


def test_the_document_says_what_became_of_each_claim(documents):
    page = documents(rows())
    assert "| toy/table1 | another | not tested | a ? |" in page
    assert "1 holds, 0 does not hold, 0 undecided, 1 not tested" in page
    assert "cifar10 / svhn" not in page


def test_the_document_gathers_claims_that_had_nothing_to_lose(documents):
    idle = claim("toy/table1", "an idle one", None, "a 0.5; unattacked 0.6, with nothing to lose")
    page = documents([*rows(), idle, idle])
    assert "an idle one" not in page
    assert "has nothing to lose: toy/table1 (2)." in page


def test_a_row_stands_once_with_all_attacks_beside_each_other():
    cell = lambda place, **facts: Cell(f"toy/{place}", "ALOE", "cifar10", "auroc", **facts)
    found = shrinking(
        [
            cell("table1").found(0.98),
            cell("table1", attack="paper", paper=0.91).found(0.9),
            cell("table1", attack="official").not_run("no data"),
            cell("adaptive", attack="standard", paper=0.91).found(0.7),
        ]
    )
    assert found == [Shrunk("toy", "ALOE", "cifar10", "91.00", "98.00", "90.00", "", "70.00")]
    assert shrinking([cell("table1").found(0.98)]) == []


def test_the_head_of_the_page_counts_every_outcome(tmp_path):
    unsure = claim("toy/table1", "a third", UNDECIDED, "a 1, b 1")
    text = write_page([*rows(), unsure], {}, tmp_path / "page.html").read_text()
    head = " ".join(text.split())
    assert "claims: 1 hold, 0 do not, 1 are undecided, 1 not tested" in head


def test_the_page_draws_where_a_loss_went(tmp_path):
    point = Cell("toy/table1", "a|b", "step", LOSS, group="a|b", kind="point")
    falls = [1.0, 0.5, 0.25, 0.125, 0.1, 0.1]
    made = [point.found(y, x=10.0 * i) for i, y in enumerate(falls)]
    section = sections([*rows(), *made], {})[0]
    (panel,) = [p for p in section.panels if p.y == LOSS]
    assert panel.curves == {"a|b": [(10.0 * i, y) for i, y in enumerate(falls)]}
    assert LOSS in render([*rows(), *made], {}, tmp_path)


def test_no_two_curves_of_a_figure_look_alike():
    point = Cell(experiment="toy/figure1", row="K", column="x", metric="auroc", kind="point")
    many = [point.found(x / 2, x=x, group=str(g)) for g in range(12) for x in (0.0, 1.0)]
    (section,) = sections(many, {})
    lines = [tuple(trace["line"].values()) for trace in _figure(section.panels[0])["data"]]
    assert len(set(lines)) == 12


def test_means_of_several_sets_are_shown_where_single_sets_are_details():
    cell = Cell(experiment="toy/table1", row="MSP", column="cifar10", metric="auroc")
    columns = {"default / mean": True, "default / near": True, "default / svhn": False}
    made = [replace(cell, column=c).found(0.8) for c in columns]
    (section,) = sections([replace(cell, paper=0.9).found(0.8), *made], {})
    shown = {x.column: x.main for x in section.tables["auroc"]}
    assert shown == {"cifar10": True, **columns}


def test_what_is_not_shown_is_not_called_unmeasured(documents):
    page = documents([])
    unmeasured = next(line for line in page.splitlines() if line.startswith("**Not measured yet**"))
    assert "liang/losses" in unmeasured
    assert "liang/galleries" not in unmeasured
    assert "**Not shown**: liang/galleries, " in page


def test_each_paper_says_what_could_not_be_run_and_shows_the_numbers_of_what_was_instead(documents):
    gaps = [
        {"what": "A thing", "missing": "its images", "instead": "no stand-in: none is honest"},
        {"what": "B", "missing": "weights", "instead": "a small one", "stand_in": "toy/table1"},
    ]
    page = "\n".join(reproduction._not_run(list(rows()), gaps))
    assert "**A thing.** *Missing:* its images. *Instead:* no stand-in: none is honest." in page
    assert "*Instead:* a small one (`toy/table1`)." in page
    assert "| MSP | cifar10 | AUROC | clean | 85.00 [80.00, 90.00] | 100 / 200 |" in page
    assert "no data" not in page  # a cell without a number is no line
    heading = "## What the paper ran and this project could not"
    assert documents(rows()).count(heading) == len(reproduction.NOT_RUN)  # toy has no gaps


def test_every_stand_in_is_an_experiment_and_every_paper_names_its_gaps():
    names = set(reproduction.about())
    for paper, gaps in reproduction.NOT_RUN.items():
        assert gaps, paper
        for gap in gaps:
            assert set(gap) <= {"what", "missing", "instead", "stand_in"}
            assert gap.get("stand_in", "pro/imagenet") in names
            assert (
                "stand_in" in gap or gap["instead"].startswith("no stand-in: ") or paper == "aloe"
            )
