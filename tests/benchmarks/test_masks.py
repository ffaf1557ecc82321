"""The gallery of masks: what is in it, what is held out, and that each mask protects nothing."""

import json

import pytest
import torch

from benchmarks.masks import FIRST, HELD_OUT, MASKS, digest, tuned_on
from benchmarks.masks import __main__ as runner
from benchmarks.masks.truth import build, digits, hidden, noise_of, truth
from rood.attacks import PGD, WorstOf
from rood.errors import CapabilityError
from rood.evaluation.rows import Row
from rood.metrics import auroc
from rood_zoo.rows import Rows

QUICK = WorstOf(tier="quick")


def test_the_gallery_is_large_and_every_mask_says_what_it_hides():
    assert len(MASKS) >= 40
    for name, mask in MASKS.items():
        assert mask.label() == name
        assert "__doc__" in vars(mask), name
        assert mask.__doc__.count("\n") == 0, name


def test_the_held_out_masks_have_the_smallest_digests_of_all_but_the_first():
    later = sorted((name for name in MASKS if name not in FIRST), key=digest)
    assert sorted(HELD_OUT) == sorted(later[:8])
    assert sorted([*tuned_on(), *HELD_OUT]) == sorted(MASKS)


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_separates_clean_images_as_the_detector_below_it(name):
    n = 16
    images, mask = digits(n), build(name, n)
    x = torch.cat([images.inside, images.outside])
    with noise_of(0), torch.no_grad():
        s = mask.score(x)
        honest = hidden(name, n).score(x)
    assert s.shape == (2 * n,)
    if name != "saturated":  # ties of a probability of 1 count half
        apart = auroc(inside=honest[:n], outside=honest[n:])
        assert auroc(inside=s[:n], outside=s[n:]) > apart - 0.15


@pytest.mark.parametrize("name", ["flip", "quantised", "off_grid_freeze"])
def test_a_mask_protects_nothing(name):
    assert truth(name, 8) < 0.05


def test_the_runner_writes_rows_and_measures_nothing_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "ATTACKS", {"pgd": PGD(steps=2)})
    rows = Rows(tmp_path / "rows.jsonl", runner.KEY)
    runner.measure("flip", 8, rows)
    written = rows.path.read_text()
    found = [Row(**json.loads(line)) for line in written.splitlines()]
    value = {r.scenario: r.value for r in found if r.metric == "auroc"}
    assert value.keys() == {"truth linf:0.1", "pgd linf:0.1"}
    flags = {r.metric: r.verdict for r in found if r.scenario == "pgd linf:0.1"}
    assert flags["flag_untrue_gradient"] == flags["auroc"] == "fail"
    runner.measure("flip", 8, Rows(rows.path, runner.KEY))
    assert rows.path.read_text() == written


def test_an_attack_that_cannot_run_leaves_no_row(tmp_path, monkeypatch, capsys):
    def refused(*_):
        raise CapabilityError("no gradient")

    monkeypatch.setattr(runner, "audited", refused)
    rows = Rows(tmp_path / "rows.jsonl", runner.KEY)
    runner.measure("flip", 4, rows)
    assert not rows.has(detector="flip", scenario="pgd linf:0.1", metric="auroc")
    assert "no gradient" in capsys.readouterr().out


def test_a_network_without_gradient_does_not_abort_an_audit():
    found = {r.metric: r for r in runner.audited("numpy_detour", "quick", QUICK, 4)}
    assert found["flag_zero_gradient"].verdict == "fail"
