"""FORT's claims about its tables, tested on our rows."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import product

from rood.metrics import Interval
from rood_papers.fort.systems import AT_NEARER, DISTANCES, FILE
from rood_papers.framework.cells import Cell
from rood_papers.framework.claims import TELLS, claim, falling
from rood_papers.framework.intervals import NOTHING, difference

SCORES = tuple(FILE["methods"])[::-1]  # the best under attack first
TURNED = "cifar100, inside cifar10"  # the column of the other way round
FAR = 0.1  # of an AUROC: what counts as far above

Number = Interval | None
Values = dict[tuple[str, str, str], Number]  # by row, column and attack

ATTACKS = (  # which, what follows the column's name, and how a sentence calls it
    ("paper", "", "the paper's attack"),
    ("paper", AT_NEARER, "a quarter of it"),
    ("standard", "", "our suite"),
)


def table1(experiment: str, rows: Sequence[Cell]) -> Iterator[Cell]:
    """The order of the scores under attack."""
    found = _values(rows)
    first = "digits" if any(r.column == "digits" for r in rows) else "cifar10"
    for (column, where), (attack, at, by) in product(_columns(rows, first), ATTACKS):
        values = [(m, found.get((m, column + at, attack))) for m in SCORES]
        text = f"under {by}, relative Mahalanobis is above Mahalanobis, and that above MSP"
        before = [found.get((m, column, "clean")) for m in SCORES]
        yield _ordered(experiment, where + text, *values, before=before)


def table3(experiment: str, rows: Sequence[Cell]) -> Iterator[Cell]:
    """Whether the mean of two networks is more robust than each of them."""
    found = _values(rows)
    columns = product(_columns(rows), DISTANCES, ATTACKS)
    for (column, where), method, (attack, at, by) in columns:
        names = list(FILE["worlds"]["cifar10" if where else "cifar100"]["networks"])[:3]
        of = {n: found.get((f"{method}, {n}", column + at, attack)) for n in names}
        both = of.pop("ensemble")
        best = max(of, key=lambda n: -1.0 if (v := of[n]) is None else v.value)
        text = f"{method}: under {by}, the mean of two networks is above each of them"
        before = [found.get((f"{method}, {n}", column, "clean")) for n in of]
        values = ("mean", None if None in of.values() else both), (best, of[best])
        yield _ordered(experiment, where + text, *values, before=before)


def table4(experiment: str, rows: Sequence[Cell]) -> Iterator[Cell]:
    """Whether an attacker with few pixels does less than one with many."""
    found = _values(rows)
    columns = product(_columns(rows), DISTANCES, ATTACKS)
    for (column, where), method, (attack, at, by) in columns:
        sides = {s: f"{method}, {s}" for s in ("32x32", "network's size")}
        values = [(s, found.get((row, column + at, attack))) for s, row in sides.items()]
        text = f"{method}: under {by}, an attacker of 32x32 pixels does far less"
        before = [found.get((row, column, "clean")) for row in sides.values()]
        yield _ordered(experiment, where + text, *values, by=FAR, before=before)


def table5(experiment: str, rows: Sequence[Cell]) -> Iterator[Cell]:
    """Far OOD compared with near OOD."""
    found = _values(rows)
    for (near, where), (attack, at, by) in product(_columns(rows), ATTACKS):
        far = "svhn, inside cifar10" if where else "svhn"
        before = {(m, c): found.get((m, c, "clean")) for m in DISTANCES for c in (near, far)}
        after = {(m, c): found.get((m, c + at, attack)) for m, c in before}
        lead = {c: _difference(*(after[m, c] for m in DISTANCES[::-1])) for c in (near, far)}
        text = f"{where}under {by}, the lead of relative Mahalanobis shrinks on SVHN"
        # below 0 on the near set there is no lead that could shrink
        shrinks = lambda v: min(falling([v[0], NOTHING]), falling(v))
        yield _told(experiment, text, lead.items(), shrinks, list(before.values()))
        for m in DISTANCES:
            fall = {c: _difference(before[m, c], after[m, c]) for c in (far, near)}
            text = f"{where}{m}: under {by}, far OOD falls by more than near OOD"
            own = [before[m, c] for c in (near, far)]
            yield _ordered(experiment, text, *fall.items(), before=own)


def _columns(rows: Sequence[Cell], first: str = "cifar10") -> Iterator[tuple[str, str]]:
    """The paper's column and, if it has rows, that with ID and OOD exchanged, with its prefix."""
    yield first, ""
    if any(r.column == TURNED for r in rows):
        yield TURNED, "CIFAR-10 inside: "


def _values(rows: Sequence[Cell]) -> Values:
    return {(r.row, r.column, r.attack): r.interval for r in rows if r.metric == "auroc"}


def _ordered(
    experiment: str,
    text: str,
    *values: tuple[str, Number],
    by: float = 0.0,
    before: Sequence[Number] = (),  # unattacked: near chance, no order can be tested
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
