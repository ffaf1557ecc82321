"""What stands under the title."""

from pathlib import Path

import pytest
from report_folder import build, case

from rood.evaluation.store import Contents, read_folder
from rood.report.facts import command, date, facts
from rood.report.numbers import Numbers


def told(folder: Contents) -> dict[str, str]:
    return dict(facts(folder, Numbers(folder.rows)))


def test_a_folder_says_when_what_how_and_on_how_many(folder: Path) -> None:
    found = read_folder(folder)
    assert told(found) == {
        "Date": "2026-03-01 12:34 UTC",
        "Networks": "digits-ce: accuracy 99.1\u00a0% [97.9\u00a0%, 99.6\u00a0%]; "
        "digits-aloe: accuracy 97.4\u00a0% [96.2\u00a0%, 97.9\u00a0%]",
        "Detectors": "msp, energy, knn and vim",
        "Attack": "pgd (steps 40, restarts 2) at L∞ 0.02, L∞ 0.05 and L∞ 0.1; attacked: OOD "
        "images, ID images and both",
        "Images per set": "ID 400; OOD fashion 400; OOD noise 400",
    }
    assert command(found).startswith("rood audit --inside folder:digits --outside")


def test_an_old_folder_says_what_it_has(tmp_path: Path) -> None:
    found = read_folder(build(tmp_path, labelled=False))
    assert list(told(found)) == ["Networks", "Detectors", "Attack", "Images per set"]
    assert command(found) == ""


def test_a_fraction_is_written_in_one_way_only() -> None:
    rows = tuple(case("msp", 0.9, 0.1, scenario="pgd linf:8/255"))
    assert told(Contents(rows))["Attack"] == "pgd at L∞ 8/255 ≈ 0.031; attacked: both"


@pytest.mark.parametrize("bad", [None, "", "yesterday", 12, {"a": 1}, "9999-99-99"])
def test_a_strange_date_is_no_date(bad: object) -> None:
    assert date({"date": bad}) == ""
