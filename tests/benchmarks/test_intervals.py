"""How often the intervals hold the truth: a few cells here, the whole table as a slow test."""

import numpy as np
import pytest

from benchmarks import intervals
from benchmarks.intervals import BAR, Setting, coverage, truth
from rood import metrics


def test_the_truth_is_what_many_scores_have():
    s = Setting(300_000, 150_000, 0.9, spread=2.0)
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(size=s.n_in), s.mu + 2 * rng.normal(size=s.n_out)
    found = metrics.summary(inside, outside, intervals.THRESHOLD, resamples=1)
    for name, true in truth(s).items():
        assert found[name].value == pytest.approx(true, abs=0.004), name


@pytest.mark.parametrize(
    ("setting", "repetitions"),
    [
        (Setting(50, 50, 0.02), 200),
        (Setting(50, 50, 0.5), 200),
        (Setting(200, 200, 0.998), 150),
        (Setting(50, 300, 0.98), 150),
        (Setting(200, 60, 0.1, spread=3.0), 150),
    ],
)
def test_intervals_hold_the_truth_as_often_as_they_say(setting, repetitions):
    held, _ = coverage(setting, repetitions, resamples=100)
    three_errors = 3 * (BAR * (1 - BAR) / repetitions) ** 0.5
    assert min(held.values()) > BAR - three_errors / 2, held


def test_groups_restore_the_coverage_of_auroc():
    n = int(intervals.group_sizes(30).sum())
    setting = Setting(n, n, 0.9, groups=30)
    assert coverage(setting, 100, resamples=100)[0]["auroc"] >= 0.88
    assert coverage(setting, 100, resamples=1, use_groups=False)[0]["auroc"] < 0.75


@pytest.mark.slow
@pytest.mark.parametrize("s", list(intervals.settings()), ids=str)
def test_every_cell_of_the_table_holds_the_truth_in_92_per_cent(s):
    n = intervals.repetitions(s)
    held, _ = coverage(s, n)
    least = BAR if s.spread == 1 and not s.groups else 0.9
    assert held["auroc"] >= least
    assert min(held.values()) >= (0.87 if s.groups else least), held
