"""Looking rows up: which networks, detectors and budgets there are, and the worst number of each."""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from rood.evaluation.results import Row

SIDES = ("outside", "inside", "both")


class Budget(NamedTuple):
    """How far an attacker may go, read from a scenario such as "pgd linf:8/255"."""

    family: str  # the norm; the scenario's own name where it states no norm
    eps: float  # NaN where the scenario states none
    text: str  # eps as it was written

    def words(self) -> str:
        """The attacker, as a sentence introduces him."""
        if self.family == "linf":
            return f"an attacker who may change every pixel by {self.text}"
        if self.family == "l2":
            return f"an attacker who may move an image by an L2 distance of {self.text}"
        if self.text:
            return f"an attacker with a budget of {self.family} {self.text}"
        return f"the scenario “{self.family}”"

    def label(self) -> str:
        names = {"linf": "L∞", "l2": "L2"}
        return f"{names.get(self.family, self.family)} {self.text}".strip()


def budget(scenario: str) -> Budget:
    """The budget a scenario states in its last word."""
    norm, colon, text = scenario.split(" ")[-1].partition(":")
    try:
        eps = float(Fraction(text)) if colon and norm else math.nan
    except (ValueError, ZeroDivisionError):
        eps = math.nan
    return Budget(norm, eps, text) if math.isfinite(eps) else Budget(scenario, math.nan, "")


class Numbers:
    """The rows of an audit, by what they are about."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = tuple(rows)
        self._cells: dict[tuple[str, str, str, str, str], list[Row]] = {}
        for row in self.rows:
            key = (row.metric, row.model, row.detector, row.scenario, row.side)
            self._cells.setdefault(key, []).append(row)

    @cached_property
    def models(self) -> list[str]:
        return _unique(row.model for row in self.rows)

    @cached_property
    def scenarios(self) -> list[str]:
        """All attacks, weakest first."""
        found = _unique(
            row.scenario
            for row in self.rows
            if row.side != "none" and row.scenario != "clean" and not row.metric.startswith("flag_")
        )
        return sorted(found, key=lambda name: (budget(name).family, _size(name), name))

    @cached_property
    def families(self) -> dict[str, list[str]]:
        """The scenarios of each norm, smallest eps first."""
        families: dict[str, list[str]] = {}
        for scenario in self.scenarios:
            families.setdefault(budget(scenario).family, []).append(scenario)
        return families

    def largest(self, family: str) -> list[str]:
        """The scenarios (one for each attack) with the largest eps of a family."""
        scenarios = self.families[family]
        most = max(map(_size, scenarios))
        return [name for name in scenarios if _size(name) == most]

    def detectors(self, model: str) -> list[str]:
        return _unique(
            row.detector for row in self.rows if row.model == model and row.metric == "auroc"
        )

    def datasets(self, model: str) -> list[str]:
        return _unique(
            row.dataset for row in self.rows if row.model == model and row.metric == "auroc"
        )

    def get(
        self,
        metric: str,
        model: str,
        detector: str,
        scenarios: Sequence[str] = ("clean",),
        sides: Sequence[str] = ("none",),
        dataset: str | None = None,
    ) -> list[Row]:
        """Every finite number of one kind."""
        rows = [
            row
            for scenario in scenarios
            for side in sides
            for row in self._cells.get((metric, model, detector, scenario, side), ())
        ]
        rows = [row for row in rows if math.isfinite(row.value)]
        return rows if dataset is None else [row for row in rows if row.dataset == dataset]

    def accuracy(self, model: str) -> Row | None:
        return next(iter(self.get("accuracy", model, "")), None)

    def threshold(self, model: str, detector: str) -> float | None:
        """The deployed threshold: a score above it is rejected."""
        rows = [r for r in self.rows if (r.metric, r.model, r.detector) == ("threshold", model, detector)]
        return next((row.value for row in rows if math.isfinite(row.value)), None)


def lowest(rows: Sequence[Row]) -> Row | None:
    """The worst of numbers that should be high."""
    return min(rows, key=lambda row: row.value, default=None)


def highest(rows: Sequence[Row]) -> Row | None:
    """The worst of numbers that should be low."""
    return max(rows, key=lambda row: row.value, default=None)


def _size(scenario: str) -> float:
    eps = budget(scenario).eps
    return eps if math.isfinite(eps) else 0.0


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
