"""Two folders side by side: what fell, what else changed, and the exit code."""

import json

import numpy as np
import pytest
from lies import THREAT, copied, edited, measured, recounted
from typer.testing import CliRunner

from rood.cli import app
from rood.errors import ResultsError
from rood.receipts.difference import difference
from rood.receipts.receipt import Receipt


@pytest.fixture(scope="module")
def lower(receipt, tmp_path_factory):
    """The receipt with all OOD images scored as low as can be."""
    folder = copied(receipt, tmp_path_factory.mktemp("lower") / "receipt")
    low = Receipt(folder).scores(measured(folder, "inside")).min() - 1
    for threat in ("", THREAT):
        file = measured(folder, "s", threat).scores
        edited(folder, file, lambda a: a | {"scores": np.full_like(a["scores"], low)})
    recounted(folder)
    return folder


def test_a_folder_does_not_differ_from_itself(receipt):
    found = difference(receipt, receipt)
    assert found.facts == found.alone == ()
    assert {(c.difference.value, c.word, c.paired) for c in found.changes} == {(0.0, "same", True)}
    assert all(c.difference.low == c.difference.high == 0 for c in found.changes)


def test_what_fell_is_named_and_the_rest_is_the_same(receipt, lower):
    found = difference(receipt, lower)
    assert {c.detector for c in found.lower} == {"msp"}
    assert {c.word for c in found.changes if c.detector == "knn"} == {"same"}
    assert all(c.after < c.before for c in found.lower)
    assert all(c.difference.low <= c.difference.value <= c.difference.high for c in found.changes)


def test_the_command_says_it_and_ends_with_3(receipt, lower, tmp_path):
    page = tmp_path / "diff.html"
    said = CliRunner().invoke(app, ["diff", str(receipt), str(lower), "--page", str(page)])
    assert said.exit_code == 3, said.output
    assert "lower" in said.stdout
    assert "beyond chance" in said.stdout
    html = page.read_text()
    assert html.count("<tr><td>") == len(difference(receipt, lower).changes)
    assert '<td class="lower">lower</td>' in html
    assert "script" not in html.replace("script-src", "")


def test_the_command_as_json(receipt):
    said = CliRunner().invoke(app, ["diff", str(receipt), str(receipt), "--json"])
    assert said.exit_code == 0
    told = json.loads(said.stdout)
    assert {c["word"] for c in told["changes"]} == {"same"}


def test_what_else_changed_is_told(receipt, tmp_path):
    folder = copied(receipt, tmp_path / "other")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["versions"]["torch"] = "1.0"
    manifest["settings"]["data"]["s"] = "0" * 64
    (folder / "manifest.json").write_text(json.dumps(manifest))
    found = difference(receipt, folder)
    assert any(f.startswith("torch: ") and f.endswith(" -> 1.0") for f in found.facts)
    assert any("data s: " in f for f in found.facts)
    assert not any(c.paired for c in found.changes)


def test_values_follow_from_scores_not_from_rows(receipt, tmp_path):
    folder = copied(receipt, tmp_path / "other")
    lines = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    for row in lines:
        if row["metric"] == "auroc":
            row["value"] = 0.123
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    changes = difference(receipt, folder).changes
    assert changes
    assert all(c.before == c.after != 0.123 for c in changes)


def test_nothing_in_common_is_an_error(receipt, tmp_path):
    folder = copied(receipt, tmp_path / "other")
    text = (folder / "rows.jsonl").read_text().replace('"s"', '"t"')
    (folder / "rows.jsonl").write_text(text)
    with pytest.raises(ResultsError, match="found none"):
        difference(receipt, folder)
