"""OSCR against its definition, closed forms, and the shares at a fixed threshold."""

from itertools import pairwise

import numpy as np
import pytest
from refusals import refused

from rood.errors import InputError
from rood.metrics import auroc, auroc_interval, ccr_at, oscr, oscr_interval, summary, wilson
from rood.metrics.intervals import share_of


def by_definition(inside, right, outside):
    """The area under CCR against FPR by trapezoids, threshold by threshold, as in the paper."""
    points = [(0.0, 0.0)]
    for tau in sorted({*inside, *outside}):
        ccr = sum(s <= tau and ok for s, ok in zip(inside, right, strict=True)) / len(inside)
        points.append((sum(s <= tau for s in outside) / len(outside), ccr))
    return sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(points))


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_area_under_ccr_against_fpr(seed):
    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, 40, 2)
    levels = rng.choice([3, 1000])  # with ties, and almost without
    inside, outside = rng.integers(0, levels, n) * 1e3, (rng.integers(0, levels, m) + 1) * 1e3
    right = rng.random(n) < rng.random()
    found = oscr(inside=inside, right=right, outside=outside)
    assert found == pytest.approx(by_definition(inside, right, outside), abs=1e-12)


def test_closed_forms():
    inside, outside = np.arange(100.0), np.arange(80.0, 180.0)
    every, none = np.ones(100, bool), np.zeros(100, bool)
    assert oscr(inside=inside, right=every, outside=outside) == auroc(
        inside=inside, outside=outside
    )
    assert oscr(inside=inside, right=none, outside=outside) == 0
    # apart: the accuracy; turned round: nothing; all tied: half the accuracy
    right = np.arange(100) < 70
    assert oscr(inside=inside, right=right, outside=outside + 100) == pytest.approx(0.7)
    assert oscr(inside=inside + 1000, right=right, outside=outside) == 0
    assert oscr(inside=0 * inside, right=right, outside=0 * outside) == pytest.approx(0.35)


def test_the_wrong_images_are_behind_infinite_scores_too():
    inside, right, outside = [-np.inf, 1.0, np.inf], [True, False, True], [np.inf, 0.0]
    wanted = by_definition(inside, right, outside)
    assert oscr(inside=inside, right=np.array(right), outside=outside) == pytest.approx(wanted)


def test_it_is_the_accuracy_times_the_auroc_of_the_right_images():
    rng = np.random.default_rng(0)
    inside, outside, right = rng.normal(size=200), rng.normal(1, 1, 150), rng.random(200) < 0.8
    wanted = right.mean() * auroc(inside=inside[right], outside=outside)
    assert oscr(inside=inside, right=right, outside=outside) == pytest.approx(wanted)


def test_the_interval_covers_at_its_rate():
    """Of many draws, about 95 % of the intervals hold the value of the distribution."""
    rng = np.random.default_rng(1)
    big = rng.normal(size=200_000), rng.random(200_000) < 0.8, rng.normal(1.2, 1, 200_000)
    true = oscr(inside=big[0], right=big[1], outside=big[2])
    hits = 0
    for _ in range(300):
        s_in, s_out, right = rng.normal(size=80), rng.normal(1.2, 1, 60), rng.random(80) < 0.8
        value, low, high = oscr_interval(s_in, right, s_out)
        assert 0 <= low <= value <= high <= 1
        hits += low <= true <= high
    assert 0.92 <= hits / 300 <= 0.995


def test_groups_widen_the_interval():
    rng = np.random.default_rng(2)
    videos = np.repeat(np.arange(10), 10)
    inside, outside = rng.normal(size=10)[videos], rng.normal(1, 1, 10)[videos]
    right = np.ones(100, bool)
    alone = oscr_interval(inside, right, outside)
    grouped = oscr_interval(inside, right, outside, groups=(videos, videos))
    assert grouped.value == alone.value
    assert grouped.high - grouped.low > alone.high - alone.low


def test_the_interval_of_auroc_alone_is_that_of_the_summary():
    rng = np.random.default_rng(3)
    inside, outside, groups = rng.normal(size=40), rng.normal(1, 1, 30), np.arange(40) // 4
    for ids in ((None, None), (groups, None)):
        wanted = summary(inside, outside, groups=ids)["auroc"]
        assert auroc_interval(inside, outside, groups=ids) == wanted


def test_ccr_is_the_share_that_is_right_and_accepted():
    rng = np.random.default_rng(4)
    inside, right = rng.integers(0, 9, 60) / 2.0, rng.random(60) < 0.7
    for tau in (-1, 0, 2.0, 9):
        hits = [s <= tau and ok for s, ok in zip(inside, right, strict=True)]
        found = ccr_at(tau, inside=inside, right=right)
        assert found == share_of(np.array(hits))
        assert found.low <= wilson(np.mean(hits), 60).low + 1e-12


def test_what_is_no_truth_value_is_refused():
    words = "expected right as 2 truth values, one per ID image, got"
    refused(InputError, words, oscr, inside=[0.0, 1.0], right=[1, 0], outside=[2.0])
    refused(InputError, words, ccr_at, 0.5, inside=[0.0, 1.0], right=[True])
