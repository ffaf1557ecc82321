"""The difference of two AUROCs against DeLong in plain loops, and by simulation."""

import math

import numpy as np
import pytest

from rood.errors import InputError
from rood.metrics import auroc, auroc_difference


def plain(a, b):
    """Value and standard error, written from the paper: Mann-Whitney kernels, structural sums."""

    def kernel(inside, outside):
        return 1.0 if outside > inside else 0.5 if outside == inside else 0.0

    sums = []
    for inside, outside in (a, b):
        by_in = [sum(kernel(i, o) for o in outside) / len(outside) for i in inside]
        by_out = [sum(kernel(i, o) for i in inside) / len(inside) for o in outside]
        sums.append((by_in, by_out))
    areas = [sum(by_in) / len(by_in) for by_in, _ in sums]
    variance = 0.0
    for side in (0, 1):
        first, second = sums[0][side], sums[1][side]
        n = len(first)
        covariance = [[0.0, 0.0], [0.0, 0.0]]
        for r, (u, au) in enumerate(((first, areas[0]), (second, areas[1]))):
            for s, (v, av) in enumerate(((first, areas[0]), (second, areas[1]))):
                products = sum((x - au) * (y - av) for x, y in zip(u, v, strict=True))
                covariance[r][s] = products / (n - 1)
        variance += (covariance[0][0] + covariance[1][1] - 2 * covariance[0][1]) / n
    return areas[1] - areas[0], math.sqrt(variance)


def drawn(rng, n=40, m=30, shift=1.0, noise=0.5):
    inside, outside = rng.normal(size=n), rng.normal(shift, size=m)
    rounded = lambda v: np.round(v + noise * rng.normal(size=v.size), 1)  # with ties
    return (rounded(inside), rounded(outside)), (rounded(inside), rounded(outside))


@pytest.mark.parametrize("seed", range(5))
def test_the_interval_is_that_of_delong(seed):
    a, b = drawn(np.random.default_rng(seed))
    value, error = plain(a, b)
    found = auroc_difference(a, b)
    assert found.value == pytest.approx(value, abs=1e-12)
    assert found.high - found.value == pytest.approx(1.959964 * error, rel=1e-6)
    assert found.value == pytest.approx(
        auroc(inside=b[0], outside=b[1]) - auroc(inside=a[0], outside=a[1])
    )


def test_pairing_makes_it_narrower_and_order_matters():
    a, b = drawn(np.random.default_rng(0), noise=0.1)
    paired, alone = auroc_difference(a, b), auroc_difference(a, b, paired=False)
    assert paired.high - paired.low < 0.5 * (alone.high - alone.low)
    shuffled = (b[0][::-1], b[1][::-1])
    assert auroc_difference(a, shuffled).high - alone.high == pytest.approx(0, abs=0.1)


def test_nine_in_ten_intervals_hold_no_difference_where_there_is_none():
    rng = np.random.default_rng(1)
    held = [i.low <= 0 <= i.high for i in (auroc_difference(*drawn(rng)) for _ in range(300))]
    assert 0.91 < np.mean(held) <= 0.99


def test_the_same_scores_differ_by_nothing_and_perfect_ones_by_the_rule_of_three():
    a, _ = drawn(np.random.default_rng(2))
    assert auroc_difference(a, a) == (0.0, 0.0, 0.0)
    perfect, better = (np.arange(30), np.arange(30) + 100), (np.arange(30), np.arange(30) + 200)
    assert auroc_difference(perfect, better) == (0.0, -0.1, 0.1)


def test_groups_widen_the_interval():
    a, b = drawn(np.random.default_rng(3))
    twice = lambda sides: tuple(np.repeat(s, 4) for s in sides)
    groups = tuple(np.repeat(np.arange(s.size), 4) for s in a)
    alone, grouped = (
        auroc_difference(twice(a), twice(b), groups=g) for g in ((None, None), groups)
    )
    assert grouped.high - grouped.low == pytest.approx(2 * (alone.high - alone.low), rel=0.05)


def test_other_images_cannot_be_paired():
    a, b = drawn(np.random.default_rng(4))
    with pytest.raises(InputError, match="paired=False"):
        auroc_difference(a, (b[0][1:], b[1]))
