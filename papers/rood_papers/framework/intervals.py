"""Intervals of differences, gains, means and medians; histograms."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom, rankdata

from rood.metrics import Interval

NOTHING = Interval(0.0, 0.0, 0.0)
BARS = 40  # of a histogram
BEYOND = 0.005  # of all scores at each end of a histogram: a few lie very far


def difference(after: Interval, before: Interval) -> Interval:
    """after - before, its half-widths added in squares.

    That is the interval of two independent numbers. Of the same images before and after an attack
    it is too wide rather than too narrow, as long as images that raise one AUROC raise the other.
    """
    value = after.value - before.value
    below = math.hypot(after.value - after.low, before.high - before.value)
    above = math.hypot(after.high - after.value, before.value - before.low)
    return Interval(value, value - below, value + above)


def gain(
    inside: ArrayLike, outside: ArrayLike, base_inside: ArrayLike, base_outside: ArrayLike
) -> Interval:
    """AUROC of a score less that of its base on the same images, by DeLong's paired covariance."""
    own, base = _placements(inside, outside), _placements(base_inside, base_outside)
    moved = [a - b for a, b in zip(own, base, strict=True)]
    value = float(moved[0].mean())
    # the differences are paired, so that the covariance of the two scores cancels
    half = NormalDist().inv_cdf(0.975) * math.sqrt(sum(map(_variance_of_mean, moved)))
    return Interval(value, max(value - half, -1.0), min(value + half, 1.0))


def _placements(inside: ArrayLike, outside: ArrayLike) -> tuple[NDArray[np.float64], ...]:
    """The share of the other side that each image is ranked correctly against; ID first.

    Ties count one half.
    """
    s_in, s_out = np.asarray(inside), np.asarray(outside)
    ranks = _ranks(np.concatenate([s_in, s_out]))
    below = ranks[: len(s_in)] - _ranks(s_in)  # of the OOD images, for each ID image
    beaten = ranks[len(s_in) :] - _ranks(s_out)
    return 1 - below / len(s_out), beaten / len(s_in)


def _ranks(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """In float64, whatever the scores are in: some versions of SciPy keep to float32."""
    return np.asarray(rankdata(scores), dtype=np.float64)


def _variance_of_mean(moved: NDArray[np.float64]) -> float:
    """The variance of a mean; for a single image the largest possible."""
    return float(moved.var(ddof=1)) / len(moved) if len(moved) > 1 else 1.0


def median(values: Sequence[float] | np.ndarray) -> Interval:
    """The median with order statistics as its interval, which covers it with 95 % or more.

    With fewer than six values, even the smallest and the largest cover it less often.
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    n = len(ordered)
    rank = int(binom.ppf(0.025, n, 0.5))  # fewer than so many lie below the median
    low, high = max(rank - 1, 0), min(n - rank, n - 1)
    return Interval(float(np.median(ordered)), float(ordered[low]), float(ordered[high]))


def known(interval: Interval) -> Interval | float | None:
    """The interval; its value alone where an end is not finite, None where the value is not."""
    if not math.isfinite(interval.value):
        return None
    return interval if all(map(math.isfinite, interval)) else interval.value


def averaged(values: Sequence[Interval]) -> Interval:
    """The mean over OOD sets, and of the ends: wide enough, as the sets share one inside."""
    value, low, high = (sum(v) / len(values) for v in zip(*values, strict=True))
    return Interval(value, low, high)


def histogram(
    groups: Mapping[str, ArrayLike],
    bars: int,
    beyond: float = 0.0,  # share of all values past each end, counted in the outermost bar
) -> Iterator[tuple[str, float, float]]:
    """Group, middle of a bar, share of that group in it."""
    values = {name: np.asarray(v, dtype=np.float64) for name, v in groups.items()}
    together = np.concatenate(list(values.values()))
    low, high = np.quantile(together, [beyond, 1 - beyond])
    borders = np.histogram_bin_edges([low, high], bars)
    middles = (borders[1:] + borders[:-1]) / 2
    for name, own in values.items():
        counts, _ = np.histogram(np.clip(own, low, high), borders)
        for x, count in zip(middles.tolist(), counts.tolist(), strict=True):
            yield name, x, count / len(own)
