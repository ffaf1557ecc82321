"""Intervals of changes and of medians hold the truth as often as they say."""

import numpy as np
import pytest

from rood.metrics import Interval, summary
from rood_papers.framework.claims import UNDECIDED, falling, ordered
from rood_papers.framework.intervals import difference, known, median


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


def test_numbers_fall_where_each_pair_is_further_apart_than_its_interval():
    """Half-widths of 0.03 and 0.04 make one of 0.05, and a wide third number is no excuse."""
    around = lambda v, half: Interval(v, v - half, v + half)
    first, wide = around(0.9, 0.03), around(0.5, 0.2)
    second = lambda v: around(v, 0.04)
    assert falling([first, second(0.84), wide]) == 1.0
    assert falling([first, second(0.86)]) == UNDECIDED
    assert falling([first, second(0.92)]) == UNDECIDED
    assert falling([first, second(0.96)]) == 0.0
    assert falling([first, second(0.84), around(0.9, 0.01)]) == 0.0
    assert falling([first, second(0.75)], by=0.1) == UNDECIDED
    assert falling([first, second(0.74)], by=0.1) == 1.0


def test_numbers_without_an_interval_still_move_a_little():
    alone = lambda v: Interval(v, v, v)
    assert falling([alone(0.9), alone(0.894)]) == UNDECIDED
    assert falling([alone(0.9), alone(0.89)]) == 1.0
    assert falling([alone(0.9), alone(0.894)], least=0.0) == 1.0


def test_an_order_with_a_number_missing_is_not_tested():
    one = Interval(0.9, 0.89, 0.91)
    assert ordered("toy", "a is above b", {"a": one, "b": None}).ours is None
    found = ordered("toy", "a is above b", {"a": one, "b": Interval(0.5, 0.4, 0.6)})
    assert (found.ours, found.column, found.kind) == (1.0, "a 0.9000, b 0.5000", "claim")
