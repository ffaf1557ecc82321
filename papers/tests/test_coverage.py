"""Codes that cover a latent space: Stirling's numbers and chances, against counting."""

import itertools
import math

import pytest
from refusals import refused

from rood.errors import InputError
from rood_papers.liang.coverage import coverage, stirling


def test_stirlings_numbers_count_the_ways_to_part_things():
    for n in range(1, 7):
        ways = {_heaps(labels) for labels in itertools.product(range(n), repeat=n)}
        for k in range(n + 2):
            assert stirling(n, k) == sum(len(heaps) == k for heaps in ways)
    assert stirling(0, 0) == 1
    assert stirling(0, 3) == 0
    refused(InputError, "expected n >= 0", stirling, -1, 2)


def _heaps(labels):
    return frozenset(
        frozenset(i for i, label in enumerate(labels) if label == heap) for heap in set(labels)
    )


@pytest.mark.parametrize(("n", "spots"), [(1, 1), (3, 2), (5, 3), (6, 4), (4, 4), (2, 3)])
def test_coverage_is_the_share_of_draws_that_hit_every_spot(n, spots):
    draws = list(itertools.product(range(spots), repeat=n))
    want = sum(len(set(d)) == spots for d in draws) / len(draws)
    assert coverage(n, spots) == pytest.approx(want, rel=1e-14)


def test_both_ways_to_the_coverage_agree(monkeypatch):
    for n, spots in ((1, 1), (7, 5), (60, 20), (200, 100), (300, 20)):
        exact = coverage(n, spots)
        monkeypatch.setattr("rood_papers.liang.coverage.EXACT", 0)
        assert coverage(n, spots) == pytest.approx(exact, rel=1e-10)
        monkeypatch.undo()


def test_coverage_tends_to_one_as_draws_outnumber_spots():
    values = [coverage(n, 50) for n in (49, 50, 100, 200, 400, 1000, 3000)]
    assert values[0] == 0
    assert values == sorted(values)
    assert 0 < values[1] < 1e-19  # 50! / 50^50
    assert values[1] == pytest.approx(math.exp(math.lgamma(51) - 50 * math.log(50)))
    assert values[-1] == pytest.approx(1, abs=1e-12)
    refused(InputError, "spots >= 1", coverage, 3, 0)
