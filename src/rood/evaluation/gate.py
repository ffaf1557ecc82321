"""Which numbers of an audit pass: both sides attacked, to be believed, not below a limit."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rood.errors import ResultsError
from rood.evaluation.rows import CLASSES, Row

NOT_BELIEVED = "the attack failed its own checks, the number cannot be believed"


class Missing(NamedTuple):
    """A detector that should have been attacked and was not."""

    model: str  # "" where a time limit left it out on every network
    detector: str

    def __str__(self) -> str:
        return " ".join(filter(None, self))


class Worst(float):
    """The lowest AUROC with both sides attacked.

    Not a number (nan), which is neither above nor below any limit, where a number cannot be
    believed or one is missing.

    Parameters
    ----------
    row : Row or None
        The row it is from; None where nothing is known of a detector.
    missing : str
        The detector that was not attacked.
    """

    row: Row | None
    missing: str

    def __new__(cls, row: Row | None, missing: str = "") -> "Worst":
        believed = row is not None and not failure(row, None)
        self = super().__new__(cls, row.value if row is not None and believed else math.nan)
        self.row, self.missing = row, missing
        return self

    def __getnewargs__(self) -> tuple[Row | None, str]:  # type: ignore[override]
        return self.row, self.missing

    def __repr__(self) -> str:
        if self.row is None:
            return f"nan ({self.missing}: not attacked)"
        value = "nan" if math.isnan(self) else f"{self:.3f}"
        return f"{value} ({place(self.row)}: {failure(self.row, None) or _value(self.row)})"


def worst(rows: Iterable[Row], missing: Sequence[Missing] = ()) -> Worst:
    """Of these rows; `missing` is what should have been attacked and was not."""
    if missing:
        return Worst(None, str(missing[0]))
    if not (found := attacked(rows)):
        raise ResultsError(
            "expected an AUROC with both sides attacked, found none: audit with budgets (threats), "
            "and name detectors and sets as the rows do"
        )
    return Worst(min(found, key=lambda r: _rank(r, None)))


def attacked(rows: Iterable[Row]) -> list[Row]:
    """Every AUROC with both sides attacked."""
    return [r for r in rows if is_attacked(r)]


def is_attacked(row: Row) -> bool:
    """Whether it is an AUROC with both sides attacked."""
    return row.metric == "auroc" and row.side == "both"


def failure(row: Row, bar: float | None) -> str:
    """Why a row does not pass, with its numbers; "" where it does."""
    if row.verdict == "fail":
        return f"{_value(row)}: {NOT_BELIEVED}"
    # not "value < bar", which NaN is not
    return f"{_value(row)}: below {bar:g}" if bar is not None and not row.value >= bar else ""


def not_attacked(rows: Iterable[Row], manifest: Mapping[str, Any] | None) -> list[Missing]:
    """The networks and detectors without a row, or that a time limit left out."""
    said = manifest or {}
    there = {(r.model, r.detector) for r in attacked(rows)}
    planned = _part(_part(said, "settings"), "detectors")
    missing = {Missing(m, d) for m in planned for d in _part(planned, m) if (m, d) not in there}
    time = _part(said, "time")
    late = [*(time.get("dropped") or ()), *(pair[0] for pair in time.get("left_out") or ())]
    named = {m.detector for m in missing}
    return sorted(missing | {Missing("", d) for d in late if d not in {*named, CLASSES}})


def worst_of_each(rows: Iterable[Row], bar: float | None) -> list[Row]:
    """The row of every network and detector that passes least."""
    least: dict[tuple[str, str], Row] = {}
    for row in attacked(rows):
        pair = (row.model, row.detector)
        if pair not in least or _rank(row, bar) < _rank(least[pair], bar):
            least[pair] = row
    return list(least.values())


def place(row: Row) -> str:
    """Which network and detector, on which OOD images, under which attack."""
    return f"{row.model} {row.detector} on {row.dataset}, {row.scenario}"


def _rank(row: Row, bar: float | None) -> tuple[bool, float]:
    """One that does not pass goes before one that does; NaN first of all."""
    return not failure(row, bar), -math.inf if math.isnan(row.value) else row.value


def _value(row: Row) -> str:
    interval = "" if row.low is None else f" (95 % interval {row.low:.3f} to {row.high:.3f})"
    return f"AUROC {row.value:.3f}{interval}, both sides attacked"


def _part(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A table of the manifest; empty where it is missing or damaged."""
    found = facts.get(name)
    return found if isinstance(found, Mapping) else {}
