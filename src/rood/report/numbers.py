"""The rows of an audit by network, detector and budget."""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from rood.evaluation.rows import CERTIFIED as PROVED
from rood.evaluation.rows import CLEAN, Row
from rood.report.words import shown

NORMS = {"linf": "L∞", "l2": "L2", "l1": "L1", "l0": "L0"}
LEVELS = 255
LET_THROUGH = "fpr95_in_fixed"  # OOD images accepted at the deployed threshold
CERTIFIED = f"{PROVED}auroc"  # the metric of rows with a proved lower bound of the AUROC


class Budget(NamedTuple):
    """How far an attacker may go, read from a scenario such as "pgd linf:8/255"."""

    family: str  # the norm; the scenario's own name where it states no norm
    eps: float  # NaN where the scenario states none
    text: str  # eps as it was written

    @property
    def short(self) -> str:
        """eps alone: "8/255" where it is a number of grey levels, else the decimal."""
        levels = round(self.eps * LEVELS) if math.isfinite(self.eps) else 0
        ratio = f"{levels}/{LEVELS}"
        whole = levels > 0 and abs(self.eps * LEVELS - levels) < 1e-6
        if whole and ("/" in self.text or len(ratio) < len(self.text)):
            return ratio
        return f"{self.eps:g}" if math.isfinite(self.eps) else ""

    def label(self) -> str:
        """The one way in which the page writes a budget: "L∞ 8/255 ≈ 0.031"."""
        about = f" ≈ {self.eps:.2g}" if "/" in self.short else ""
        before, plus, ball = self.family.rpartition("+")
        norm = NORMS.get(ball, shown(ball))
        first = f"{shown(before).replace(':', ' ')}, then " if plus else ""
        return f"{first}{norm} {self.short}{about}".strip()

    def words(self) -> str:
        """The attacker, as a noun phrase."""
        if self.short:
            return f"an attack within {self.label()}"
        return f"the scenario “{shown(self.family)}”"


def budget(scenario: str) -> Budget:
    """The budget in the last word of a scenario."""
    norm, colon, text = scenario.split(" ")[-1].rpartition(":")
    try:
        eps = float(Fraction(text)) if colon and norm else math.nan
    except (ValueError, ZeroDivisionError, OverflowError):
        eps = math.nan
    return Budget(norm, eps, text) if math.isfinite(eps) else Budget(scenario, math.nan, "")


def in_words(scenario: str) -> str:
    """A scenario as the page writes it: "pgd, L∞ 8/255 ≈ 0.031"."""
    attack, _, _ = scenario.rpartition(" ")
    found = budget(scenario)
    return f"{shown(attack)}, {found.label()}" if attack and found.short else shown(scenario)


def eps_of(scenario: str) -> float:
    """The eps of a scenario; 0 where it states none."""
    eps = budget(scenario).eps
    return eps if math.isfinite(eps) else 0.0


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
            if row.side != "none"
            and row.scenario != CLEAN
            and not row.metric.startswith(("flag_", PROVED))
        )
        return sorted(found, key=lambda name: (budget(name).family, eps_of(name), name))

    @cached_property
    def families(self) -> dict[str, list[str]]:
        """The scenarios of each norm, smallest eps first."""
        families: dict[str, list[str]] = {}
        for scenario in self.scenarios:
            families.setdefault(budget(scenario).family, []).append(scenario)
        return families

    def largest(self, family: str) -> list[str]:
        """The scenarios (one for each attack) with the largest eps of a norm; none for ""."""
        scenarios = self.families.get(family, [])
        most = max(map(eps_of, scenarios), default=0.0)
        return [name for name in scenarios if eps_of(name) == most]

    @cached_property
    def strongest(self) -> dict[str, str]:
        """The largest budget of each norm, as a label."""
        return {family: budget(self.largest(family)[0]).label() for family in self.families}

    @cached_property
    def proved(self) -> dict[str, str]:
        """The largest certified budget of each norm, as a label."""
        found = _unique(row.scenario for row in self.rows if row.metric == CERTIFIED)
        return {budget(s).family: budget(s).label() for s in sorted(found, key=eps_of)}

    @cached_property
    def _measured(self) -> dict[str, list[Row]]:
        measured: dict[str, list[Row]] = {model: [] for model in self.models}
        for row in self.rows:
            if row.metric == "auroc":
                measured[row.model].append(row)
        return measured

    def detectors(self, model: str) -> list[str]:
        return _unique(row.detector for row in self._measured[model])

    def datasets(self, model: str) -> list[str]:
        return _unique(row.dataset for row in self._measured[model])

    @cached_property
    def all_detectors(self) -> list[str]:
        return _unique(d for model in self.models for d in self.detectors(model))

    @cached_property
    def all_datasets(self) -> list[str]:
        return _unique(d for model in self.models for d in self.datasets(model))

    def get(
        self,
        metric: str,
        model: str,
        detector: str,
        scenarios: Sequence[str] = ("clean",),
        sides: Sequence[str] = ("none",),
        dataset: str | None = None,
    ) -> list[Row]:
        """The rows of one metric whose value is finite."""
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

    def let_through(
        self, model: str, detector: str, attacks: Sequence[str] = ()
    ) -> tuple[Row, Row | None] | None:
        """The share of OOD images below the deployed threshold: clean, and attacked by these.

        Each on the OOD set where it is largest.
        """
        clean = highest(self.get(LET_THROUGH, model, detector))
        attacked = highest(self.get(LET_THROUGH, model, detector, attacks, ("outside", "both")))
        return None if clean is None else (clean, attacked)

    def certified(
        self, model: str, detector: str, family: str, dataset: str | None = None
    ) -> list[Row]:
        """Proved lower bounds at the largest attacked eps of a norm, whoever proved them.

        Where nothing was attacked: at the largest certified one.
        """
        rows = [
            row
            for row in self.rows
            if row.metric == CERTIFIED
            and (row.model, row.detector) == (model, detector)
            and dataset in (None, row.dataset)
            and budget(row.scenario).family == family
            and math.isfinite(row.value)
        ]
        attacked = {eps_of(name) for name in self.largest(family)}
        most = attacked or {max((eps_of(row.scenario) for row in rows), default=0.0)}
        return [row for row in rows if eps_of(row.scenario) in most]

    @cached_property
    def _thresholds(self) -> dict[tuple[str, str], float]:
        rows = [row for row in self.rows if row.metric == "threshold" and math.isfinite(row.value)]
        return {(row.model, row.detector): row.value for row in rows}

    def threshold(self, model: str, detector: str) -> float | None:
        """The deployed threshold: a score above it is rejected."""
        return self._thresholds.get((model, detector))


def lowest(rows: Sequence[Row]) -> Row | None:
    """The row with the lowest value."""
    return min(rows, key=lambda row: row.value, default=None)


def highest(rows: Sequence[Row]) -> Row | None:
    """The row with the highest value."""
    return max(rows, key=lambda row: row.value, default=None)


def in_row_order(rows: Iterable[Row], field: str, names: Iterable[str]) -> list[str]:
    """Names as the rows first mention them: files come in the order of their file names."""
    place = {name: i for i, name in enumerate(_unique(getattr(row, field) for row in rows))}
    return sorted(_unique(names), key=lambda name: place.get(name, len(place)))


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
