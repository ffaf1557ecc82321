"""Intervals of what is made of several numbers, or of a number for each image."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom, rankdata

from rood.metrics import Interval
from rood_papers.framework.rows import NOISE, UNDECIDED, Row, claim

__all__ = ["NOTHING", "difference", "falling", "gain", "known", "median", "noise_of", "ordered"]

NOTHING = Interval(0.0, 0.0, 0.0)


def difference(after: Interval, before: Interval) -> Interval:
    """after - before, its half-widths added in squares.

    That is the interval of two independent numbers. Of the same images before and after an attack
    it is too wide rather than too narrow, as long as images that raise one AUROC raise the other.
    """
    value = after.value - before.value
    below = math.hypot(after.value - after.low, before.high - before.value)
    above = math.hypot(after.high - after.value, before.value - before.low)
    return Interval(value, value - below, value + above)


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
) -> Row:
    """The claim that each number is above the next; not tested where one is missing."""
    known = [i for i in numbers.values() if i is not None]
    value = lambda i: "?" if i is None else f"{i.value:.4f}"
    shown = ", ".join(f"{name} {value(i)}" for name, i in numbers.items())
    complete = len(known) == len(numbers)
    return claim(experiment, text, falling(known, least=least) if complete else None, shown)


def gain(
    inside: ArrayLike, outside: ArrayLike, base_inside: ArrayLike, base_outside: ArrayLike
) -> Interval:
    """AUROC of a score less that of its base on the same images, by DeLong's paired covariance."""
    own, base = _placements(inside, outside), _placements(base_inside, base_outside)
    moved = [a - b for a, b in zip(own, base, strict=True)]
    value = float(moved[0].mean())
    # what both scores share is gone from the differences, and with it their covariance
    half = NormalDist().inv_cdf(0.975) * math.sqrt(sum(map(_variance_of_mean, moved)))
    return Interval(value, max(value - half, -1.0), min(value + half, 1.0))


def _placements(inside: ArrayLike, outside: ArrayLike) -> tuple[NDArray[np.float64], ...]:
    """The share of the other side that each image is told from, ties by halves; inside first."""
    s_in, s_out = np.asarray(inside), np.asarray(outside)
    ranks = _ranks(np.concatenate([s_in, s_out]))
    below = ranks[: len(s_in)] - _ranks(s_in)  # of the OOD images, for each inside
    beaten = ranks[len(s_in) :] - _ranks(s_out)
    return 1 - below / len(s_out), beaten / len(s_in)


def _ranks(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """In float64, whatever the scores are in: some versions of SciPy keep to float32."""
    return np.asarray(rankdata(scores), dtype=np.float64)


def _variance_of_mean(moved: NDArray[np.float64]) -> float:
    """Of a single image as large as it can be."""
    return float(moved.var(ddof=1)) / len(moved) if len(moved) > 1 else 1.0


def median(values: Sequence[float] | np.ndarray) -> Interval:
    """With the order statistics that enclose the true median 95 times in a hundred, or more.

    Of fewer than six values even the least and the largest do so less often.
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    n = len(ordered)
    rank = int(binom.ppf(0.025, n, 0.5))  # fewer than so many lie below the median
    low, high = max(rank - 1, 0), min(n - rank, n - 1)
    return Interval(float(np.median(ordered)), float(ordered[low]), float(ordered[high]))


def noise_of(intervals: Iterable[Interval]) -> float:
    """By how much each of two numbers moves where their difference moves by its half-width.

    Of the widest interval; of numbers without one, or of more images than matter, `NOISE`.
    """
    widths = [(i.high - i.low) / 2 for i in intervals]
    return max(NOISE, max(widths, default=0.0) / math.sqrt(2))


def known(interval: Interval) -> Interval | float | None:
    """Its value alone where an end is not finite, and nothing where the value is not."""
    if not math.isfinite(interval.value):
        return None
    return interval if all(map(math.isfinite, interval)) else interval.value
