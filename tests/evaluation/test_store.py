"""What an audit leaves on disk beside its rows, and what it refuses to begin."""

import doctest
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from campaign.mutations import odd_kinds
from report_folder import row
from safetensors.numpy import load_file
from toy_audit import THREATS, facts

import rood
from rood.errors import ResultsError
from rood.evaluation import store
from rood.evaluation.store import Results, Store, read_folder
from rood.report import write_report


def test_saved_examples_lie_in_the_threat_model(case, results):
    files = sorted(results.folder.glob("examples/**/*.safetensors"))
    assert len(files) == 2 * 2 * 3  # detectors, sets, threats
    for path in files:
        a = {k: torch.from_numpy(v) for k, v in load_file(path).items()}
        assert 2 <= len(a["original"]) == len(a["places"]) <= 7
        threat = next(t for t in THREATS if str(t) == facts(path)["condition"].removeprefix("pgd "))
        assert threat.contains(a["attacked"], a["original"]).all()
        if "knn" in str(path):
            with torch.no_grad():
                again = case.detectors["knn"].score(a["attacked"])
            torch.testing.assert_close(again, a["after"], rtol=1e-4, atol=1e-5)


def test_rows_are_read_without_torch(results):
    code = (
        "import sys, pathlib; from rood.evaluation.store import Results; "
        f"r = Results(pathlib.Path({str(results.folder)!r})); "
        "print(len(r.find(metric='auroc')), 'torch' in sys.modules)"
    )
    source = str(Path(rood.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": source},
        check=True,
    )
    assert done.stdout.split() == ["20", "False"]


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


def test_the_worst_number_is_that_of_the_rows_with_the_fields_given(folder):
    assert repr(Results(folder).worst()).startswith("nan (net <b> on ")  # the row with NaN
    assert Results(folder).worst(detector="msp") == 0.2
    planned = {"settings": {"detectors": {"net": {"msp": {}, "<b>": {}, "vim": {}}}}}
    (folder / "manifest.json").write_text(json.dumps(planned))
    assert repr(Results(folder).worst()) == "nan (net vim: not attacked)"
    assert Results(folder).worst(detector="msp") == 0.2
    with pytest.raises(ResultsError, match="expected an AUROC"):
        Results(folder).worst(detector="knn")


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


def test_a_missing_or_empty_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "none", tmp_path / "file", tmp_path):
        with pytest.raises(ResultsError, match=r"^expected .*: run `rood audit` first") as caught:
            write_report(path)
        assert "\n" not in str(caught.value)
    (tmp_path / "rows.jsonl").write_text("")
    with pytest.raises(ResultsError, match="found none"):
        write_report(tmp_path)


@pytest.mark.parametrize("line", ["{not json}\n", '{"model": "x"}\n', "[]\n", "\udcff\n"])
def test_rows_that_are_none_are_one_sentence(tmp_path: Path, line: str) -> None:
    (tmp_path / "rows.jsonl").write_bytes(line.encode("utf-8", "surrogateescape"))
    with pytest.raises(ResultsError, match="expected a Row in line 1"):
        write_report(tmp_path)


def test_a_number_written_twice_counts_once_and_the_later_one_stands(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(row(value=0.2).line() + row(value=0.9).line())
    assert [r.value for r in read_folder(tmp_path).rows] == [0.9]


def test_a_folder_that_is_deleted_meanwhile_is_said(tmp_path: Path) -> None:
    store = Store(tmp_path / "out")

    def interrupted() -> None:
        with store.opened({}):
            shutil.rmtree(tmp_path / "out")
            store.append("rows.jsonl", b"the rest\n")  # makes the folder again

    with pytest.raises(ResultsError, match="it was deleted or replaced while rood was writing"):
        interrupted()
    with store.opened({}):
        pass


@pytest.mark.parametrize("name", ["rows.jsonl", "manifest.json", "scores/a.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "huge", "zero"])
def test_only_regular_files_of_ordinary_size_are_read(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "rows.jsonl").write_text(row(value=0.2).line())
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    odd_kinds()["endless" if kind == "zero" else kind](path)
    if name == "rows.jsonl":
        with pytest.raises(ResultsError):
            write_report(tmp_path)
    else:
        assert write_report(tmp_path).exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [("model", []), ("value", "x"), ("low", {}), ("n_in", 0.5), ("side", "up"), ("more", 1)],
)
def test_fields_of_another_type_are_refused(tmp_path: Path, key: str, value: object) -> None:
    line = json.loads(row(value=0.2).line()) | {key: value}
    (tmp_path / "rows.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(ResultsError, match=r"expected a Row in line 1 .*: remove the line"):
        write_report(tmp_path)


def test_enormous_numbers_and_odd_names_are_shown(tmp_path: Path) -> None:
    odd = {"model": "\ud800\u202e", "value": 1e308, "low": -math.inf, "n_in": 2**62}
    line = json.loads(row(value=0.2).line()) | odd
    (tmp_path / "rows.jsonl").write_text(json.dumps(line) + "\n")
    (tmp_path / "manifest.json").write_text('{"notes": ["\\ud800"], "versions": 7, "cost": []}')
    assert "\u202e" not in write_report(tmp_path).read_text()
