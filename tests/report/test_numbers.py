"""Budgets are read from scenarios."""

import math

import pytest

from rood.report.numbers import budget


@pytest.mark.parametrize(
    ("scenario", "family", "eps"),
    [
        ("pgd linf:0.1", "linf", 0.1),
        ("worst_of linf:8/255", "linf", 8 / 255),
        ("apgd l2:0.5", "l2", 0.5),
        ("pgd linf:1/0", "pgd linf:1/0", math.nan),
        ("trajectory", "trajectory", math.nan),
        ("", "", math.nan),
    ],
)
def test_budgets_are_read_from_scenarios(scenario: str, family: str, eps: float) -> None:
    found = budget(scenario)
    assert found.family == family
    assert found.eps == pytest.approx(eps, nan_ok=True)
    assert found.words()
