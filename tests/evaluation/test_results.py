"""Results says what it holds, in one line and as a table."""

import doctest

import pytest
from report_folder import row

from rood.evaluation import store
from rood.evaluation.store import Results


@pytest.fixture
def folder(tmp_path):
    attack = {
        "scenario": "pgd linf:0.1",
        "side": "both",
        "verdict": "warn",
        "low": 0.1,
        "high": 0.3,
    }
    rows = [
        row(detector="", metric="accuracy", value=0.99),
        row(value=0.1),
        row(**attack, value=0.2),
        row(**attack, value=float("nan"), detector="<b>"),
        row(**attack, value=0.0, metric="flag_tied_scores"),
    ]
    (tmp_path / "rows.jsonl").write_text("".join(r.line() for r in rows))
    return tmp_path


def test_the_repr_names_what_was_audited_and_the_worst_attacked_number(folder):
    assert repr(Results(folder)) == (
        f"Results({str(folder)!r}, 5 rows; models: net; detectors: <b>, msp; "
        "worst attacked AUROC 0.200 (msp on net, fashion, pgd linf:0.1, both))"
    )


def test_a_notebook_shows_attacked_numbers_with_interval_and_verdict(folder):
    shown = Results(folder)._repr_html_()
    assert shown.count("<tr>") == 3
    assert "<td>0.200</td><td>0.100 to 0.300</td><td>warn</td>" in shown
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown


def test_a_folder_without_rows_says_so(tmp_path):
    assert repr(Results(tmp_path)) == f"Results({str(tmp_path)!r}, no rows)"
    assert "<tbody></tbody>" in Results(tmp_path)._repr_html_()


def test_the_example_of_the_docstring_runs():
    assert doctest.testmod(store).failed == 0
