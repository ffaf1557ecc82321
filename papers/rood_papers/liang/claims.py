"""What Liang et al. say of their tables, tested on our rows."""

import re
from collections.abc import Callable, Iterator, Sequence

from rood_papers.framework.cells import Cell
from rood_papers.framework.claims import NOISE, TELLS, UNDECIDED, claim, decided

HALF = 0.05  # around 1/2: what counts as matched
PRINTED = 0.005  # around 1/2: where the paper says so
NEAR = 0.1  # around what the paper prints, where that is not 1/2
CUT = re.compile(r"(\d+) steps, the paper (\d+)")  # in a note


def claims(experiment: str, rows: Sequence[Cell]) -> Iterator[Cell]:
    """Half of the pairs after matching, flat losses, and what a direct attack does."""
    before = {r.part: r.ours for r in rows if r.metric == "auroc" and r.attack == "clean"}
    tells = lambda r: (before.get(r.part) or 0.0) >= TELLS
    official = [r for r in rows if r.attack == "official" and r.kind == "cell"]
    ends = [r for r in official if r.metric == "auroc" and r.paper is not None and tells(r)]
    halves = [r for r in ends if _near(r.paper, 0.5, PRINTED)]
    matched = lambda r: lambda v: abs(v - 0.5) <= HALF
    yield _all(experiment, "where the paper is at 0.50, matching ends there", halves, matched)
    if others := [r for r in ends if r not in halves]:
        text = f"where the paper is elsewhere, matching ends within {NEAR:g} of it"
        yield _all(experiment, text, others, lambda r: lambda v: _near(v, r.paper, NEAR))
    falls = [r for r in official if r.metric == "last_fall" and r.ours != 0]  # 0: it never moved
    text = "ours: in its last fifth the loss falls by less than 1 % of its first value"
    yield _all(experiment, text, falls, lambda r: lambda v: v < 0.01, noise=0.0)
    begun = lambda r: tells(r) and "no slope at 100%" not in r.note
    own = [r for r in rows if r.attack == "standard" and begun(r)]
    text = "ours: an attack on the score itself goes below one half"
    yield _all(experiment, text, own, lambda r: lambda v: v < 0.5 - HALF)


def _all(
    experiment: str,
    text: str,
    rows: Sequence[Cell],
    holds: Callable[[Cell], Callable[[float], bool]],
    noise: float = NOISE,
) -> Cell:
    """Whether it holds of every row; by how many, and over which numbers."""
    known = [(r, r.ours) for r in rows if r.ours is not None]
    outcomes = [(r, decided(holds(r), [v], noise)) for r, v in known]
    missed = [r for r, outcome in outcomes if outcome == 0.0]
    at_border = sum(outcome == UNDECIDED for _, outcome in outcomes)
    values = [v for _, v in known]
    span = f", {min(values):.3f} to {max(values):.3f}" if values else ""
    shown = f"{len(known) - len(missed) - at_border} of {len(known)}{span}"
    if not known:
        return claim(experiment, text, None, shown)
    if not all(map(_open, missed)):
        return claim(experiment, text, 0.0, shown)
    why = ((len(missed), "cut short"), (at_border, "at the border"))
    shown += "".join(f"; {n} {what}" for n, what in why if n)
    return claim(experiment, text, UNDECIDED if missed or at_border else 1.0, shown)


def _open(row: Cell) -> bool:
    """Whether fewer steps were made than in the paper, so that more might have done it."""
    found = CUT.search(row.note)
    return found is not None and int(found[1]) < int(found[2])


def _near(value: float | None, other: float | None, width: float) -> bool:
    return value is not None and other is not None and abs(value - other) <= width
