"""What `make peers` found: the page is what its rows give, and the rows keep their promise."""

import json
import subprocess
import sys

import pytest

from benchmarks.peers import parity
from rood import detectors

RUN, PAIRS, OTHERS = parity.read()


def test_the_page_is_what_the_rows_give():
    assert parity.PAGE.read_text() == parity.page(), "run `make peers`"


@pytest.mark.parametrize("row", PAIRS, ids=lambda r: f"{r['detector']}-{r['theirs']}")
def test_a_pair_agrees(row):
    assert row["detector"] in detectors.registry.names()
    if row["same_definition"]:
        assert row["spearman"] >= parity.BAR
    else:
        assert row["reason"]
        assert row["spearman_their_definition"] >= parity.BAR


def test_every_detector_of_ours_is_compared_or_named():
    compared = {r["detector"] for r in PAIRS}
    assert compared | set(RUN["only_ours"]) == set(detectors.registry.names())


def test_a_gradient_reaches_the_pixels_from_all_of_ours_but_histograms():
    stepped = {r["detector"] for r in PAIRS if not r["gradient_ours"]}
    assert stepped == {"nac"}
    assert detectors.registry.get("nac").gradient == "surrogate"


def test_a_pair_below_the_bar_is_said():
    same = {**PAIRS[0], "same_definition": True, "spearman": 0.99}
    other = {**PAIRS[0], "same_definition": False, "spearman_their_definition": None}
    assert len(parity.short([same, other])) == 2
    assert not parity.short(PAIRS)


def test_the_page_follows_the_rows(tmp_path):
    first, *rest = parity.ROWS.read_text().splitlines()
    row = json.loads(rest[0]) | {"spearman": 0.9123, "spearman_float32": 0.9123}
    changed = tmp_path / "rows.jsonl"
    changed.write_text("\n".join([first, json.dumps(row), *rest[1:]]) + "\n")
    assert "0.9123" in parity.page(changed)


def test_the_other_library_is_not_needed_to_read_the_rows():
    code = "import sys; from benchmarks.peers import parity; parity.page(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=parity.ROOT, capture_output=True, text=True, check=True
    )
    assert "pytorch_ood" not in done.stdout
    assert "torchvision" not in done.stdout
