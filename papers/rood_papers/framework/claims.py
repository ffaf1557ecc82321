"""Claims of a paper, tested on our numbers."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, product

from rood.metrics import Interval
from rood_papers.framework.cells import Cell
from rood_papers.framework.intervals import difference

UNDECIDED = 0.5  # a claim holds (1), does not (0), or is undecided
NOISE = 0.005  # of an AUROC or a share: a claim that depends on less is undecided
TELLS = 0.75  # of an AUROC: a detector below it on clean images has nothing to lose


def claim(experiment: str, text: str, holds: float | None, ours: str, note: str = "") -> Cell:
    """A sentence: whether it holds here (1, 0, `UNDECIDED`, or not tested), and the numbers."""
    value = None if holds is None else float(holds)
    note = note or ("not run: no data" if holds is None else "")
    return Cell(experiment, text, ours, "holds", kind="claim", ours=value, note=note)


def compared(
    experiment: str,
    text: str,
    values: dict[str, float | None],
    holds: Callable[..., bool],
    noise: float = NOISE,
) -> Cell:
    """The claim about some of our numbers, given by name; not tested where one is missing."""
    shown = ", ".join(f"{k} {'?' if v is None else format(v, '.4f')}" for k, v in values.items())
    known = [v for v in values.values() if v is not None]
    complete = len(known) == len(values)
    return claim(experiment, text, decided(holds, known, noise) if complete else None, shown)


def decided(holds: Callable[..., bool], values: Sequence[float], noise: float = NOISE) -> float:
    """1 or 0 if it is the same wherever each number moves by as much as `noise`."""
    outcomes = {bool(holds(*moved)) for moved in product(*((v - noise, v + noise) for v in values))}
    return float(outcomes.pop()) if len(outcomes) == 1 else UNDECIDED


def falling(numbers: Sequence[Interval], by: float = 0.0, least: float = NOISE) -> float:
    """1 if each number is above the next by more than `by`, 0 if one is not, else `UNDECIDED`.

    Each pair by the interval of its difference; a number moves by `least` at least.
    """
    wide = [Interval(v, min(low, v - least), max(high, v + least)) for v, low, high in numbers]
    apart = [difference(a, b) for a, b in pairwise(wide)]
    if any(d.high <= by for d in apart):
        return 0.0
    return 1.0 if all(d.low > by for d in apart) else UNDECIDED


def ordered(
    experiment: str, text: str, numbers: Mapping[str, Interval | None], least: float = NOISE
) -> Cell:
    """The claim that each number is above the next; not tested where one is missing."""
    known = [i for i in numbers.values() if i is not None]
    value = lambda i: "?" if i is None else f"{i.value:.4f}"
    shown = ", ".join(f"{name} {value(i)}" for name, i in numbers.items())
    complete = len(known) == len(numbers)
    return claim(experiment, text, falling(known, least=least) if complete else None, shown)


def noise_of(intervals: Iterable[Interval]) -> float:
    """By how much each of two numbers moves where their difference moves by its half-width.

    Of the widest interval; of numbers without one, or of more images than matter, `NOISE`.
    """
    widths = [(i.high - i.low) / 2 for i in intervals]
    return max(NOISE, max(widths, default=0.0) / math.sqrt(2))
