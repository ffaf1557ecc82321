"""How well scores separate ID from OOD: exact, by ranks, in float64, half credit for ties.

Every metric is a formula on one object, the `Curve` of how many scores each threshold accepts.
An image is accepted as in-distribution when its score is at most the threshold.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rood.errors import InputError

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Curve:
    """How many scores each threshold accepts, ascending: below all, then every distinct score."""

    kept_in: Floats  # (..., t), from 0 to the number of inside scores; resamples lead
    kept_out: Floats  # (..., t), from 0 to the number of outside scores

    @property
    def n_in(self) -> int:
        return int(self.kept_in.flat[-1])

    @property
    def n_out(self) -> int:
        return int(self.kept_out.flat[-1])

    @property
    def totals(self) -> tuple[Floats, Floats]:
        """Number of inside and of outside scores, (..., 1) each: resampled groups differ in it."""
        return self.kept_in[..., -1:], self.kept_out[..., -1:]

    def turned(self) -> "Curve":
        """The curve of negated scores with the sides exchanged: OOD becomes the positive class."""
        n, m = self.totals
        return Curve(m - self.kept_out[..., ::-1], n - self.kept_in[..., ::-1])


def curve(inside: ArrayLike, outside: ArrayLike) -> Curve:
    """Count what is accepted at every distinct score."""
    sides = np.sort(_scores(inside, "inside")), np.sort(_scores(outside, "outside"))
    taus = np.unique(np.concatenate(sides))
    kept = (np.searchsorted(scores, taus, side="right") for scores in sides)
    return Curve(*(np.concatenate([[0.0], counts]) for counts in kept))


def numbers(values: Any, what: str) -> Floats:
    """Any sequence, array or tensor in float64, without NaN."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    array = np.asarray(values, dtype=np.float64)
    if missing := int(np.isnan(array).sum()):
        raise InputError(f"expected no NaN in {what}, got {missing} of {array.size}: drop them")
    return array


def _scores(values: ArrayLike, side: str) -> Floats:
    scores = numbers(values, f"{side} scores")
    if scores.ndim != 1:
        raise InputError(f"expected {side} scores of shape (n,), got {scores.shape}: flatten them")
    if scores.size == 0:
        raise InputError(f"expected at least one {side} score, got none: give more images")
    return scores


def auroc(*, inside: ArrayLike, outside: ArrayLike) -> float:
    """AUROC: P(s_out > s_in) + P(s_out = s_in) / 2 (Mann and Whitney).

    Parameters
    ----------
    inside, outside : array_like of shape (n,), (m,)
        Scores of ID and of OOD images; higher means more OOD.

    Examples
    --------
    >>> from rood.metrics import auroc
    >>> auroc(inside=[0.1, 0.2, 0.3], outside=[0.3, 0.9])
    0.9166666666666666
    """
    return float(auroc_of(curve(inside, outside)))


def aupr_in(*, inside: ArrayLike, outside: ArrayLike) -> float:
    """Average precision (step-wise, not trapezoidal) with in-distribution positive.

    Parameters
    ----------
    inside, outside : array_like of shape (n,), (m,)
        Scores of ID and of OOD images; higher means more OOD.

    Examples
    --------
    >>> from rood.metrics import aupr_in
    >>> aupr_in(inside=[0.1, 0.2], outside=[0.8, 0.9])
    1.0
    """
    return float(aupr_of(curve(inside, outside)))


def aupr_out(*, inside: ArrayLike, outside: ArrayLike) -> float:
    """Average precision (step-wise, not trapezoidal) with OOD positive.

    Parameters
    ----------
    inside, outside : array_like of shape (n,), (m,)
        Scores of ID and of OOD images; higher means more OOD.

    Examples
    --------
    >>> from rood.metrics import aupr_out
    >>> aupr_out(inside=[0.1, 0.2], outside=[0.8, 0.9])
    1.0
    """
    return float(aupr_of(curve(inside, outside).turned()))


def fpr_at_tpr_in(*, inside: ArrayLike, outside: ArrayLike, tpr: float = 0.95) -> float:
    """FPR95 with ID positive (ALOE and others): share of OOD accepted where `tpr` of ID is.

    Parameters
    ----------
    inside, outside : array_like of shape (n,), (m,)
        Scores of ID and of OOD images; higher means more OOD.
    tpr : float
        Share of ID images that the threshold accepts.

    Examples
    --------
    >>> from rood.metrics import fpr_at_tpr_in
    >>> fpr_at_tpr_in(inside=range(100), outside=[5] * 10 + [200] * 90)
    0.1
    """
    return float(fpr_of(curve(inside, outside), tpr))


def fpr_at_tpr_out(*, inside: ArrayLike, outside: ArrayLike, tpr: float = 0.95) -> float:
    """FPR95 with OOD positive (OpenOOD, PRO): share of ID rejected where `tpr` of OOD is.

    Parameters
    ----------
    inside, outside : array_like of shape (n,), (m,)
        Scores of ID and of OOD images; higher means more OOD.
    tpr : float
        Share of OOD images that the threshold rejects.

    Examples
    --------
    >>> from rood.metrics import fpr_at_tpr_out
    >>> fpr_at_tpr_out(inside=range(100), outside=[5] * 10 + [200] * 90)
    0.95
    """
    return float(fpr_of(curve(inside, outside).turned(), tpr))


def detection_error(*, inside: ArrayLike, outside: ArrayLike) -> float:
    """min over τ of [P(s_in > τ) + P(s_out <= τ)] / 2, τ = ±inf included: at most 1/2.

    Parameters
    ----------
    inside, outside : array_like of shape (n,), (m,)
        Scores of ID and of OOD images; higher means more OOD.

    Examples
    --------
    >>> from rood.metrics import detection_error
    >>> detection_error(inside=[0.1, 0.2, 0.6, 0.3], outside=[0.5, 0.9])
    0.125
    """
    return float(detection_error_of(curve(inside, outside)))


METRICS: dict[str, Callable[..., float]] = {
    "auroc": auroc,
    "aupr_in": aupr_in,
    "aupr_out": aupr_out,
    "fpr95_in": fpr_at_tpr_in,
    "fpr95_out": fpr_at_tpr_out,
    "detection_error": detection_error,
}


def threshold_at_tpr(inside: ArrayLike, tpr: float = 0.95) -> float:
    """The threshold that accepts a share `tpr` of `inside`: its ceil(tpr n)-th smallest score.

    Parameters
    ----------
    inside : array_like of shape (n,)
        Scores of clean ID images, not those to be tested.
    tpr : float
        Share of ID images to accept; at least 1 / (1 - tpr) scores are needed.

    Examples
    --------
    >>> from rood.metrics import threshold_at_tpr
    >>> threshold_at_tpr(range(1, 101))
    95.0
    """
    scores = _scores(inside, "inside")
    threshold, needed = lowest_share(scores, tpr), int(_ceil(1 / (1 - tpr)))
    if scores.size < needed:
        raise InputError(
            f"expected at least {needed} in-distribution scores for a {100 * tpr:g} % threshold, "
            f"got {scores.size}: give more images"
        )
    return threshold


def lowest_share(scores: Floats, share: float = 0.95) -> float:
    """The highest of the lowest `share` of scores."""
    rank = int(_rank(share, scores.size))
    return float(np.partition(scores, rank - 1)[rank - 1])


def missed_at(threshold: float, *, outside: ArrayLike) -> float:
    """Share of OOD accepted at a threshold that was fixed beforehand.

    Examples
    --------
    >>> from rood.metrics import missed_at
    >>> missed_at(0.5, outside=[0.1, 0.6, 0.7, 0.8])
    0.25
    """
    return float((_scores(outside, "outside") <= numbers(threshold, "threshold")).mean())


def false_alarm_at(threshold: float, *, inside: ArrayLike) -> float:
    """Share of in-distribution rejected at a threshold that was fixed beforehand.

    Examples
    --------
    >>> from rood.metrics import false_alarm_at
    >>> false_alarm_at(0.5, inside=[0.1, 0.2, 0.5, 0.8])
    0.25
    """
    return float((_scores(inside, "inside") > numbers(threshold, "threshold")).mean())


def detection_error_at(threshold: float, *, inside: ArrayLike, outside: ArrayLike) -> float:
    """Half the sum of both errors at a threshold that was fixed beforehand.

    Examples
    --------
    >>> from rood.metrics import detection_error_at
    >>> detection_error_at(0.5, inside=[0.1, 0.2, 0.5, 0.8], outside=[0.6, 0.7])
    0.125
    """
    return (missed_at(threshold, outside=outside) + false_alarm_at(threshold, inside=inside)) / 2


def auroc_of(c: Curve) -> Floats:
    """AUROC of a curve, or of each of its resamples."""
    twice = np.diff(c.kept_out) * (c.kept_in[..., 1:] + c.kept_in[..., :-1])
    n, m = c.totals
    return twice.sum(axis=-1) / (2 * n * m)[..., 0]


def aupr_of(c: Curve) -> Floats:
    """Average precision with the inside positive; of the turned curve, with the outside."""
    kept = c.kept_in[..., 1:]
    # a resample may leave out the lowest scores: nothing is kept there, and its weight is 0
    both = kept + c.kept_out[..., 1:]
    precision = kept / np.where(both > 0, both, 1)
    return (np.diff(c.kept_in) * precision).sum(axis=-1) / c.kept_in[..., -1]


def fpr_of(c: Curve, tpr: float = 0.95) -> Floats:
    """Share of the outside accepted where `tpr` of the inside is."""
    first = (c.kept_in < _rank(tpr, c.kept_in[..., -1:])).sum(axis=-1, keepdims=True)
    return np.take_along_axis(c.kept_out, first, axis=-1)[..., 0] / c.kept_out[..., -1]


def detection_error_of(c: Curve) -> Floats:
    """The least half sum of both errors."""
    return detection_errors(c).min(axis=-1)


def detection_errors(c: Curve) -> Floats:
    """Half the sum of both errors at every threshold."""
    # whole numbers until the last division, so that 1/2 is never exceeded by rounding
    n, m = c.totals
    return (m * (n - c.kept_in) + n * c.kept_out) / (2 * n * m)


def _rank(tpr: float, n: Any) -> Any:
    if not 0 < tpr < 1:
        raise InputError(f"expected a true positive rate between 0 and 1, got {tpr:g}: try 0.95")
    return _ceil(tpr * n)


def _ceil(x: Any) -> Any:
    return np.ceil(x * (1 - 1e-9))  # 0.55 * 100 is 55.00000000000001 in binary, and means 55
