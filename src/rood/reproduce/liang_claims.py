"""What Liang et al. say of their tables, tested on our rows."""

import re
from collections.abc import Callable, Iterator, Sequence

from rood.reproduce.experiment import Row, claim
from rood.reproduce.rows import UNDECIDED

HALF = 0.05  # around 1/2: what counts as matched
PRINTED = 0.005  # around 1/2: where the paper says so
NEAR = 0.1  # around what the paper prints, where that is not 1/2
CUT = re.compile(r"(\d+) steps, the paper (\d+)")  # in a note


def claims(experiment: str, rows: Sequence[Row]) -> Iterator[Row]:
    """Half of the pairs after matching, flat losses, and what a direct attack does."""
    official = [r for r in rows if r.attack == "official"]
    ends = [r for r in official if r.metric == "auroc" and r.paper is not None]
    halves = [r for r in ends if _near(r.paper, 0.5, PRINTED)]
    matched = lambda r: _near(r.ours, 0.5, HALF)
    yield _all(experiment, "where the paper is at 0.50, matching ends there", halves, matched)
    if others := [r for r in ends if r not in halves]:
        text = f"where the paper is elsewhere, matching ends within {NEAR:g} of it"
        yield _all(experiment, text, others, lambda r: _near(r.ours, r.paper, NEAR))
    falls = [r for r in official if r.metric == "last_fall" and r.ours != 0]  # 0: it never moved
    flat = lambda r: float(r.ours or 0) < 0.01
    text = "ours: in its last fifth the loss falls by less than 1 % of its first value"
    yield _all(experiment, text, falls, flat)
    own = [r for r in rows if r.attack == "standard" and "no slope at 100%" not in r.note]
    below = lambda r: float(r.ours or 0) < 0.5 - HALF
    yield _all(experiment, "ours: an attack on the score itself goes below one half", own, below)


def _all(experiment: str, text: str, rows: Sequence[Row], holds: Callable[[Row], bool]) -> Row:
    known = [r for r in rows if r.ours is not None]
    missed = [r for r in known if not holds(r)]
    values = [r.ours for r in known if r.ours is not None]
    span = f", {min(values):.3f} to {max(values):.3f}" if values else ""
    shown = f"{len(known) - len(missed)} of {len(known)}{span}"
    if not missed or not all(map(_open, missed)):
        return claim(experiment, text, not missed if known else None, shown)
    return claim(experiment, text, UNDECIDED, f"{shown}; {len(missed)} cut short")


def _open(row: Row) -> bool:
    """Whether fewer steps were made than in the paper, so that more might have done it."""
    found = CUT.search(row.note)
    return found is not None and int(found[1]) < int(found[2])


def _near(value: float | None, other: float | None, width: float) -> bool:
    return value is not None and other is not None and abs(value - other) <= width
