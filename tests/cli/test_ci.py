"""What CI servers get of an audit: files, a summary, a gate that says values and limit."""

import json
import sys
from xml.etree import ElementTree

import pytest
from fake_trackers import FAKES
from small_audit import small_command
from typer.testing import CliRunner

from rood.cli import app
from rood.evaluation.store import Results


@pytest.fixture(scope="module")
def out(files, tmp_path_factory):
    """A finished audit: the same command with other files for CI does no work."""
    folder = tmp_path_factory.mktemp("ci") / "out"
    assert audit(files, folder).exit_code == 0
    return folder


def audit(files, out, *more):
    few = ("--detectors", "msp", "--limit", "20")
    return CliRunner().invoke(app, small_command(files, out, *few, *more))


def test_the_gate_says_the_values_and_the_limit(files, out):
    said = audit(files, out, "--fail-under", "0.99").stderr.splitlines()
    head, line = [text for text in said if text.startswith("gate: ")]
    value = Results(out).worst()
    assert head == "gate: failed: an AUROC is below 0.99, missing, or not to be believed"
    assert line.startswith("gate: net msp on stripes, pgd linf:0.05: AUROC ")
    assert f"{value.row.value:.3f}" in line
    passed = audit(files, out, "--fail-under", "0").stderr
    assert f"gate: passed: the lowest AUROC with both sides attacked, {value:.3f}," in passed
    assert "gate" not in audit(files, out, "--fail-under", "0", "--quiet").stderr


def test_files_for_servers_are_written_also_where_the_gate_fails(files, out, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    names = [str(tmp_path / name) for name in ("a.xml", "a.sarif")]
    more = ("--junit", names[0], "--sarif", names[1], "--fail-under", "0.99")
    assert audit(files, out, *more).exit_code == 3
    assert ElementTree.parse(names[0]).getroot().find(".//failure") is not None
    (run,) = json.loads((tmp_path / "a.sarif").read_text())["runs"]
    assert "below_limit" in {r["ruleId"] for r in run["results"]}
    assert "| ❌ | net | msp |" in (tmp_path / "summary.md").read_text()


def test_results_point_into_the_repository(files, out, tmp_path, monkeypatch):
    monkeypatch.chdir(out.parent)
    assert audit(files, out, "--sarif", str(tmp_path / "a.sarif"), "--fail-under", "1").exit_code
    result = json.loads((tmp_path / "a.sarif").read_text())["runs"][0]["results"][0]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "out/rows.jsonl"
    line = (out / "rows.jsonl").read_text().splitlines()[place["region"]["startLine"] - 1]
    assert json.loads(line)["metric"] == "auroc"


def test_a_file_that_cannot_be_written_is_one_sentence(files, out, tmp_path):
    result = audit(files, out, "--sarif", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith("error: ")


def test_numbers_are_logged_also_where_the_gate_fails(files, out, monkeypatch):
    fake = FAKES["mlflow"]()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    assert audit(files, out, "--log-to", "mlflow", "--fail-under", "0.99").exit_code == 3
    assert fake.values["worst_auroc"] == Results(out).worst()
    assert [path.name for path in fake.files] == ["report.html", "rows.jsonl"]


def test_a_tracker_that_is_not_installed_is_said_before_any_work(files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    result = audit(files, tmp_path / "new", "--log-to", "wandb")
    assert result.exit_code == 1
    assert result.stderr == "error: needs wandb: pip install 'rood[wandb]'\n"
    assert not (tmp_path / "new").exists()
