"""Intervals of changes and of medians hold the truth as often as they say."""

import numpy as np
import pytest

from rood.metrics import Interval, summary
from rood.reproduce.intervals import difference, known, median


def test_the_interval_of_a_difference_is_that_of_independent_numbers():
    found = difference(Interval(0.3, 0.2, 0.5), Interval(0.9, 0.6, 0.95))
    assert found.value == pytest.approx(-0.6)
    assert found.low == pytest.approx(-0.6 - (0.1**2 + 0.05**2) ** 0.5)
    assert found.high == pytest.approx(-0.6 + (0.2**2 + 0.3**2) ** 0.5)


def test_a_change_of_the_same_images_lies_inside_at_least_as_often_as_said():
    rng, held = np.random.default_rng(0), 0
    truth = 0.0 - 0.2602499  # P(N(0,1) < N(0,1)) less P(N(0,1) < N(1,1))
    for _ in range(200):
        inside, outside = rng.normal(size=60), rng.normal(size=60) + 1
        before = summary(inside, outside, resamples=1)["auroc"]
        after = summary(inside, outside - 1, resamples=1)["auroc"]
        change = difference(after, before)
        held += change.low <= truth <= change.high
    assert held >= 190


@pytest.mark.parametrize("n", [6, 64, 200])
def test_a_median_lies_inside_at_least_as_often_as_said(n):
    rng = np.random.default_rng(n)
    rounds = 400
    found = [median(rng.exponential(size=n)) for _ in range(rounds)]
    held = sum(f.low <= np.log(2) <= f.high for f in found)
    assert held >= 0.93 * rounds
    assert all(f.low <= f.value <= f.high for f in found)
    if n == 200:  # and they are no wider than they must be
        assert np.mean([f.high - f.low for f in found]) < 0.35


def test_a_median_of_one_or_with_infinite_values():
    assert median([3.0]) == (3.0, 3.0, 3.0)
    assert known(median([1.0, np.inf, np.inf])) is None
    assert known(median([1.0] * 11 + [np.inf] * 9)) == 1.0
    assert known(median([2.0])) == (2.0, 2.0, 2.0)
