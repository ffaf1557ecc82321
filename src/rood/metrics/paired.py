"""The difference of two AUROCs: DeLong's interval, paired where both scored the same images."""

import math

import numpy as np
from numpy.typing import ArrayLike

from rood.errors import InputError
from rood.metrics.intervals import Ids, Interval, Z, coded
from rood.metrics.ranking import Floats, auroc, numbers
from rood.metrics.resampling import Codes

Sides = tuple[ArrayLike, ArrayLike]  # scores of ID images, scores of OOD images


def auroc_difference(
    a: Sides,
    b: Sides,
    *,
    paired: bool = True,
    groups: tuple[Ids | None, Ids | None] = (None, None),
    z: float = Z,
) -> Interval:
    """AUROC of `b` minus AUROC of `a`, with its 95 % interval (DeLong et al. 1988).

    Where no image of a side is out of order in one of the two, those seen say too little of those
    not seen: the interval then reaches 3 / n further, the rule of three.

    Parameters
    ----------
    a, b : (inside, outside)
        Scores of ID and of OOD images, higher means more OOD.
    paired : bool
        Whether both scored the same images in the same order, which makes the interval narrower.
    groups : (ids, ids)
        The group of each inside and of each outside image; None where images are independent.
        Only for paired scores.
    z : float
        Half the width in standard errors.

    Examples
    --------
    >>> from rood.metrics import auroc_difference
    >>> found = auroc_difference((range(50), range(25, 75)), (range(50), range(30, 80)))
    >>> round(found.value, 3), found.low < found.value < found.high
    (0.045, True)
    """
    first, second = ((numbers(i, "inside scores"), numbers(o, "outside scores")) for i, o in (a, b))
    value = auroc(inside=second[0], outside=second[1]) - auroc(inside=first[0], outside=first[1])
    parts = [_placements(*sides) for sides in (first, second)]
    variance, slack = 0.0, 0.0
    for side in (0, 1):
        one, other = parts[0][side], parts[1][side]
        codes = coded(groups[side], one.size, ("inside", "outside")[side])
        if paired:
            if one.size != other.size:
                raise InputError(
                    f"expected as many scores of the same images twice, got {one.size} and "
                    f"{other.size}: give paired=False"
                )
            variance += _variance_of_mean(other - one, codes)
            same = np.array_equal(first[side], second[side])
        else:
            variance += _variance_of_mean(one, None) + _variance_of_mean(other, None)
            same = False
        if not same and any(np.ptp(p) == 0 and p[0] in (0.0, 1.0) for p in (one, other)):
            slack = max(slack, 3 / min(one.size, other.size))
    half = z * math.sqrt(variance)
    low, high = value - half - slack, value + half + slack
    return Interval(value, max(-1.0, low), min(1.0, high))


def _placements(inside: Floats, outside: Floats) -> tuple[Floats, Floats]:
    """The share of the other side that each image is on the right side of, ties half."""
    low, high = np.sort(inside), np.sort(outside)

    def below(ordered: Floats, scores: Floats) -> Floats:
        left, right = (np.searchsorted(ordered, scores, side=s) for s in ("left", "right"))
        return (left + right) / (2 * ordered.size)

    return 1 - below(high, inside), below(low, outside)


def _variance_of_mean(values: Floats, codes: Codes | None) -> float:
    """Of the mean of images, or of groups of images."""
    n = values.size
    apart = values - values.mean()
    sums = apart if codes is None else np.bincount(codes, apart)
    few = sums.size / (sums.size - 1) if sums.size > 1 else 1.0
    return float((sums**2).sum() * few / n**2)
