"""What FORT says of its tables, tested on our rows."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

from rood.metrics import Interval
from rood_papers.fort.systems import (
    AT_NEARER,
    DIGITS,
    DISTANCES,
    METHODS,
    NETWORKS,
    PAIR,
    TURNED,
    World,
)
from rood_papers.framework.cells import Cell
from rood_papers.framework.claims import TELLS, claim, falling
from rood_papers.framework.intervals import NOTHING, difference

SCORES = tuple(METHODS)[::-1]  # the best under attack first
FAR = 0.1  # of an AUROC: what counts as far above

Number = Interval | None
Values = dict[tuple[str, str, str], Number]  # by row, column and attack

ATTACKS = (  # which, what follows the column's name, and how a sentence calls it
    ("paper", "", "the paper's attack"),
    ("paper", AT_NEARER, "a quarter of it"),
    ("standard", "", "our suite"),
)


def of_table1(rows: Sequence[Cell]) -> Iterator[Cell]:
    """The order of the scores under attack."""
    found = _values(rows)
    first = DIGITS.column if any(r.column == DIGITS.column for r in rows) else World().column
    for column, where in ((first, ""), *_if_turned(rows, TURNED.column)):
        for attack, at, by in ATTACKS:
            values = [(m, found.get((m, column + at, attack))) for m in SCORES]
            text = f"under {by}, relative Mahalanobis is above Mahalanobis, and that above MSP"
            before = [found.get((m, column, "clean")) for m in SCORES]
            yield _ordered("fort/table1", where + text, *values, before=before)


def of_table3(rows: Sequence[Cell]) -> Iterator[Cell]:
    """The mean of two networks beside each of them."""
    found = _values(rows)
    for column, where in (("cifar10", ""), *_if_turned(rows, TURNED.column)):
        names = PAIR if where else NETWORKS
        for method in DISTANCES:
            for attack, at, by in ATTACKS:
                of = {n: found.get((f"{method}, {n}", column + at, attack)) for n in names}
                both = of.pop("ensemble")
                best = max(of, key=lambda n: -1.0 if (v := of[n]) is None else v.value)
                text = f"{method}: under {by}, the mean of two networks is above each of them"
                before = [found.get((f"{method}, {n}", column, "clean")) for n in of]
                values = ("mean", None if None in of.values() else both), (best, of[best])
                yield _ordered("fort/table3", where + text, *values, before=before)


def of_table4(rows: Sequence[Cell]) -> Iterator[Cell]:
    """Few pixels to move beside many."""
    found = _values(rows)
    for column, where in (("cifar10", ""), *_if_turned(rows, TURNED.column)):
        for method in DISTANCES:
            for attack, at, by in ATTACKS:
                values = [
                    (s, found.get((f"{method}, {s}", column + at, attack)))
                    for s in ("32x32", "network's size")
                ]
                text = f"{method}: under {by}, an attacker of 32x32 pixels does far less"
                before = [found.get((f"{method}, {s}", column, "clean")) for s, _ in values]
                yield _ordered("fort/table4", where + text, *values, by=FAR, before=before)


def of_table5(rows: Sequence[Cell]) -> Iterator[Cell]:
    """Far OOD beside near OOD."""
    found = _values(rows)
    far = replace(TURNED, outside="svhn").column
    for near, where in (("cifar10", ""), *_if_turned(rows, TURNED.column)):
        for attack, at, by in ATTACKS:
            columns = (near, far if where else "svhn")
            for row in _far_beside_near(found, columns, attack, at, f"under {by}"):
                yield replace(row, row=where + row.row)


def _far_beside_near(
    found: Values, columns: tuple[str, str], attack: str, at: str, under: str
) -> Iterator[Cell]:
    near, far = columns
    before = [found.get((m, c, "clean")) for m in DISTANCES for c in columns]
    lead = {
        c: _difference(*(found.get((m, c + at, attack)) for m in DISTANCES[::-1])) for c in columns
    }
    text = f"{under}, the lead of relative Mahalanobis shrinks on SVHN"
    # below 0 on the near set there is no lead that could shrink
    shrinks = lambda v: min(falling([v[0], NOTHING]), falling(v))
    yield _told("fort/table5", text, lead.items(), shrinks, before)
    for m in DISTANCES:
        fall = {
            c: _difference(found.get((m, c, "clean")), found.get((m, c + at, attack)))
            for c in (far, near)
        }
        text = f"{m}: {under}, far OOD falls by more than near OOD"
        own = [found.get((m, c, "clean")) for c in columns]
        yield _ordered("fort/table5", text, *fall.items(), before=own)


def _if_turned(rows: Sequence[Cell], column: str) -> Iterator[tuple[str, str]]:
    """The column of the world that is turned round, where it has rows."""
    if any(r.column == column for r in rows):
        yield column, "CIFAR-10 inside: "


def _values(rows: Sequence[Cell]) -> Values:
    return {(r.row, r.column, r.attack): r.interval for r in rows if r.metric == "auroc"}


def _ordered(
    experiment: str,
    text: str,
    *values: tuple[str, Number],
    by: float = 0.0,
    before: Sequence[Number] = (),  # unattacked: of detectors that tell nothing none is best
) -> Cell:
    """Whether numbers fall from the first to the last, by more than `by` each time."""
    return _told(experiment, text, values, partial(falling, by=by), before)


def _told(
    experiment: str,
    text: str,
    values: Collection[tuple[str, Number]],
    holds: Callable[[Sequence[Interval]], float],
    before: Sequence[Number],
) -> Cell:
    found = [v for _, v in values if v is not None]
    shown = ", ".join(f"{name} {'-' if v is None else f'{v.value:.3f}'}" for name, v in values)
    if len(found) < len(values):
        return claim(experiment, text, None, shown)
    if (least := min((v.value for v in before if v is not None), default=1.0)) < TELLS:
        shown += f"; unattacked {least:.3f}, with nothing to lose"
        return claim(experiment, text, None, shown, "unattacked it hardly tells images apart")
    return claim(experiment, text, holds(found), shown)


def _difference(a: Number, b: Number) -> Number:
    return None if a is None or b is None else difference(a, b)
