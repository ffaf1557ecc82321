"""What an unfinished audit lacks, and manifests of any kind."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from report_folder import row
from safetensors.numpy import save_file

from rood.evaluation.store import read_folder
from rood.report import write_report
from rood.report.numbers import Numbers
from rood.report.tables import unfinished


def _unfinished(path: Path) -> str:
    folder = read_folder(path)
    found = unfinished(folder, Numbers(folder.rows))
    page = write_report(path).read_text(encoding="utf-8")
    assert ("This audit is unfinished" in page) == bool(found)
    return found


def test_a_folder_cut_off_at_any_line_gives_a_page_that_says_so(
    folder: Path, tmp_path: Path
) -> None:
    lines = (folder / "rows.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "manifest.json").write_text((folder / "manifest.json").read_text())
    for n in (0, 1, 2, 3, 40, 100, 250, len(lines) - 250):
        (tmp_path / "rows.jsonl").write_text("".join(lines[:n]) + lines[n][:50])
        assert _unfinished(tmp_path), n


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(row().line())
    assert _unfinished(tmp_path) == "there is no manifest.json yet"
    manifest = {"finished": False, "models": {"net": {}, "later": {}}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert "the manifest says that the audit has not ended" in _unfinished(tmp_path)
    assert "nothing is known yet about later" in _unfinished(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    assert _unfinished(tmp_path) == ""
    attacked = row(scenario="pgd linf:0.1", side="both", verdict="pass")
    (tmp_path / "rows.jsonl").write_text(row().line() + attacked.line() + row(detector="x").line())
    assert _unfinished(tmp_path) == "1 of 4 AUROC values are missing"
    (tmp_path / "manifest.json").write_text('{"skipped": ["y, x: cannot be attacked"]}')
    assert _unfinished(tmp_path) == ""
    (tmp_path / "manifest.json").write_text('{"skipped": ["pro_x: does not fit into 6s"]}')
    assert _unfinished(tmp_path) == "1 of 4 AUROC values are missing"


def test_broken_files_cost_their_own_part_only(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(row().line())
    for kind in ("scores", "examples"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "cut.safetensors").write_bytes(b"\x08")
    save_file({"other": np.zeros(3)}, tmp_path / "scores" / "other.safetensors")
    found = _unfinished(tmp_path)
    assert "2 files under scores/ cannot be read" in found
    assert "1 file under examples/ cannot be read" in found


@pytest.mark.parametrize(
    "manifest",
    [
        {},
        [],
        {"models": [], "data": 3, "split": "x", "detectors": None, "cost": [], "skipped": {}},
        {"data": {"a": None, "b": {"notes": "x", "shape": None}}, "detectors": {"msp": "odd"}},
        {"models": {"net": {"accuracy": "high"}}, "cost": {"seconds": math.nan}, "new": {"x": [1]}},
    ],
)
def test_any_manifest_gives_a_page(manifest: object, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(row().line())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert "Nothing was attacked on net" in write_report(tmp_path).read_text(encoding="utf-8")
