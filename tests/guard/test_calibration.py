"""The threshold: no more false alarms than promised, and an exact range of the deployed rate."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from scipy.stats import binom

from rood.errors import InputError
from rood.guard.calibration import calibrate


@given(
    st.lists(st.integers(-5, 5), min_size=20, max_size=60),
    st.sampled_from([0.05, 0.1, 0.2, 1 / 3, 0.5, 0.9]),
    st.booleans(),
)
def test_no_more_than_the_stated_share_of_exchangeable_images_is_rejected(values, rate, distinct):
    """Each of n + 1 scores in its turn is the new one: exact, whatever the scores are."""
    scores = np.array(values, dtype=float)
    if distinct:
        scores = scores + np.arange(len(scores)) * 1e-3
    alarms = sum(
        scores[i] > calibrate(np.delete(scores, i), rate).threshold for i in range(len(scores))
    )
    most = rate * len(scores) * (1 + 1e-9)
    assert alarms <= most
    found = calibrate(scores[1:], rate)
    assert found.bound <= rate * (1 + 1e-9)
    if distinct:  # and not one fewer than could be had
        assert alarms == math.floor(most)
        assert found.bound == pytest.approx(alarms / len(scores))


@pytest.mark.parametrize(("n", "rate"), [(19, 0.05), (304, 0.05), (99, 0.01), (5000, 0.001)])
def test_the_range_of_the_deployed_rate_is_exact(n, rate):
    """The rate is below p where at least n + 1 - rank of n images are above the 1 - p quantile."""
    found = calibrate(np.arange(n, dtype=float), rate)
    above = n + 1 - found.rank
    _, low, high = found.deployed
    assert binom.sf(above - 1, n, low) == pytest.approx(0.025)
    assert binom.sf(above - 1, n, high) == pytest.approx(0.975)


def test_what_was_seen_is_said_with_its_interval():
    found = calibrate(np.arange(304.0))
    assert (found.rank, found.threshold, found.rejected) == (290, 289.0, 14)
    assert found.observed.value == 14 / 304
    assert found.observed.low < 14 / 304 < found.observed.high
    assert "14 of 304 calibration images are rejected, 4.6 % (2.8 to 7.6)" in found.told()
    assert "with probability 4.92 % at most" in found.told()


@pytest.mark.parametrize(("rate", "needed"), [(0.05, 19), (0.01, 99), (0.1, 9)])
def test_too_few_images_for_a_rate_are_refused_with_the_number_needed(rate, needed):
    assert calibrate(np.arange(float(needed)), rate).rejected == 0
    words = f"expected at least {needed} in-distribution images"
    refused(InputError, words, calibrate, np.arange(needed - 1.0), rate)


def test_scores_that_set_no_threshold_are_refused():
    refused(InputError, "NaN", calibrate, np.array([np.nan] * 30))
    refused(InputError, "finite scores", calibrate, np.array([np.inf] * 30))
    for rate in (0, 1, -0.1, math.nan):
        refused(InputError, "false-alarm rate between 0 and 1", calibrate, np.arange(30.0), rate)
