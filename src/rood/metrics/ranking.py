"""How well scores separate ID from OOD: exact, by ranks, in float64, half credit for ties.

Every metric is a formula on one object, the `Curve` of how many scores each threshold accepts.
An image is accepted as in-distribution when its score is at most the threshold.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rood.errors import InputError
from rood.metrics.resampling import draws

Floats: TypeAlias = NDArray[np.float64]

_Z = NormalDist().inv_cdf(0.975)  # of a two-sided 95 % interval


class Interval(NamedTuple):
    """A number and its 95 % confidence interval."""

    value: float
    low: float
    high: float


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

    def turned(self) -> "Curve":
        """The curve of negated scores with the sides exchanged: OOD becomes the positive class."""
        return Curve(self.n_out - self.kept_out[..., ::-1], self.n_in - self.kept_in[..., ::-1])


def curve(inside: ArrayLike, outside: ArrayLike) -> Curve:
    """Count what is accepted at every distinct score."""
    sides = np.sort(_scores(inside, "inside")), np.sort(_scores(outside, "outside"))
    taus = np.unique(np.concatenate(sides))
    kept = (np.searchsorted(scores, taus, side="right") for scores in sides)
    return Curve(*(np.concatenate([[0.0], counts]) for counts in kept))


def _numbers(values: Any, what: str) -> Floats:
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    array = np.asarray(values, dtype=np.float64)
    if missing := int(np.isnan(array).sum()):
        raise InputError(f"expected no NaN in {what}, got {missing} of {array.size}: drop them")
    return array


def _scores(values: ArrayLike, side: str) -> Floats:
    scores = _numbers(values, f"{side} scores")
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
    return float(_auroc(curve(inside, outside)))


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
    return float(_aupr_in(curve(inside, outside)))


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
    return float(_aupr_in(curve(inside, outside).turned()))


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
    return float(_fpr_in(curve(inside, outside), tpr))


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
    return float(_fpr_in(curve(inside, outside).turned(), tpr))


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
    return float(_detection_error(curve(inside, outside)))


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
    rank = _rank(tpr, scores.size)
    needed = _ceil(1 / (1 - tpr))
    if scores.size < needed:
        raise InputError(
            f"expected at least {needed} in-distribution scores for a {100 * tpr:g} % threshold, "
            f"got {scores.size}: give more images"
        )
    return float(np.partition(scores, rank - 1)[rank - 1])


def missed_at(threshold: float, *, outside: ArrayLike) -> float:
    """Share of OOD accepted at a threshold that was fixed beforehand.

    Examples
    --------
    >>> from rood.metrics import missed_at
    >>> missed_at(0.5, outside=[0.1, 0.6, 0.7, 0.8])
    0.25
    """
    return float((_scores(outside, "outside") <= _numbers(threshold, "threshold")).mean())


def false_alarm_at(threshold: float, *, inside: ArrayLike) -> float:
    """Share of in-distribution rejected at a threshold that was fixed beforehand.

    Examples
    --------
    >>> from rood.metrics import false_alarm_at
    >>> false_alarm_at(0.5, inside=[0.1, 0.2, 0.5, 0.8])
    0.25
    """
    return float((_scores(inside, "inside") > _numbers(threshold, "threshold")).mean())


def detection_error_at(threshold: float, *, inside: ArrayLike, outside: ArrayLike) -> float:
    """Half the sum of both errors at a threshold that was fixed beforehand.

    Examples
    --------
    >>> from rood.metrics import detection_error_at
    >>> detection_error_at(0.5, inside=[0.1, 0.2, 0.5, 0.8], outside=[0.6, 0.7])
    0.125
    """
    return (missed_at(threshold, outside=outside) + false_alarm_at(threshold, inside=inside)) / 2


def wilson(share: float, n: int) -> Interval:
    """Wilson's 95 % score interval of a share observed among n.

    Examples
    --------
    >>> from rood.metrics import wilson
    >>> low, high = wilson(0.5, 100)[1:]
    >>> round(low, 3), round(high, 3)
    (0.404, 0.596)
    """
    centre = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * math.sqrt(share * (1 - share) / n + (_Z / (2 * n)) ** 2)
    return _around(share, centre - half, centre + half)


def summary(
    inside: ArrayLike,
    outside: ArrayLike,
    threshold: float | None = None,  # fixed beforehand, on clean in-distribution images
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Interval]:
    """Every metric with its 95 % interval; with a threshold, also the errors at it (`..._fixed`).

    AUROC by DeLong, shares at a fixed threshold by Wilson, the rest by stratified bootstrap.

    Parameters
    ----------
    inside, outside : array_like of shape (n,), (m,)
        Scores of ID and of OOD images; higher means more OOD.
    threshold : float, optional
        Fixed beforehand, on clean ID images.
    resamples, seed : int
        Of the bootstrap.

    Examples
    --------
    >>> from rood.metrics import summary
    >>> found = summary(inside=range(100), outside=range(80, 180), threshold=95)
    >>> found["auroc"].value, found["fpr95_in_fixed"].value
    (0.98, 0.16)
    """
    if resamples < 1:
        raise InputError(f"expected at least one resample, got {resamples}: the default is 1000")
    c = curve(inside, outside)
    found = {"auroc": _delong(c)} | _bootstrap(c, resamples, seed)
    if threshold is not None:
        missed = wilson(missed_at(threshold, outside=outside), c.n_out)
        alarms = wilson(false_alarm_at(threshold, inside=inside), c.n_in)
        found["fpr95_in_fixed"] = missed
        found["fpr95_out_fixed"] = alarms
        found["detection_error_fixed"] = _half_sum(missed, alarms)
    return found


def _auroc(c: Curve) -> Floats:
    twice = np.diff(c.kept_out) * (c.kept_in[..., 1:] + c.kept_in[..., :-1])
    return twice.sum(axis=-1) / (2 * c.n_in * c.n_out)


def _aupr_in(c: Curve) -> Floats:
    kept = c.kept_in[..., 1:]
    # a resample may leave out the lowest scores: nothing is kept there, and its weight is 0
    precision = kept / np.maximum(kept + c.kept_out[..., 1:], 1)
    return (np.diff(c.kept_in) * precision).sum(axis=-1) / c.n_in


def _fpr_in(c: Curve, tpr: float = 0.95) -> Floats:
    first = (c.kept_in < _rank(tpr, c.n_in)).sum(axis=-1, keepdims=True)
    return np.take_along_axis(c.kept_out, first, axis=-1)[..., 0] / c.n_out


def _detection_error(c: Curve) -> Floats:
    # whole numbers until the last division, so that 1/2 is never exceeded by rounding
    errors = c.n_out * (c.n_in - c.kept_in) + c.n_in * c.kept_out
    return errors.min(axis=-1) / (2 * c.n_in * c.n_out)


def _rank(tpr: float, n: int) -> int:
    if not 0 < tpr < 1:
        raise InputError(f"expected a true positive rate between 0 and 1, got {tpr:g}: try 0.95")
    return _ceil(tpr * n)


def _ceil(x: float) -> int:
    return math.ceil(x * (1 - 1e-9))  # 0.55 * 100 is 55.00000000000001 in binary, and means 55


def _around(value: float, low: float, high: float) -> Interval:
    return Interval(value, max(0.0, min(value, low)), min(1.0, max(value, high)))


def _half_sum(a: Interval, b: Interval) -> Interval:
    """Newcombe's interval of (a + b) / 2 from those of two independent shares."""
    value = (a.value + b.value) / 2
    below = math.hypot(a.value - a.low, b.value - b.low) / 2
    above = math.hypot(a.high - a.value, b.high - b.value) / 2
    return _around(value, value - below, value + above)


def _delong(c: Curve) -> Interval:
    """DeLong's interval on the log-odds scale, where its coverage is right near 0 and 1."""
    n, m, value = c.n_in, c.n_out, float(_auroc(c))
    above = m - (c.kept_out[1:] + c.kept_out[:-1]) / 2  # outside scores above each inside one
    below = (c.kept_in[1:] + c.kept_in[:-1]) / 2
    variance = _variance(above, c.kept_in) / (m**2 * n) + _variance(below, c.kept_out) / (n**2 * m)
    if min(n, m) < 2 or variance == 0:
        return wilson(value, min(n, m))
    centre, half = math.log(value / (1 - value)), _Z * math.sqrt(variance) / (value * (1 - value))
    low, high = (1 / (1 + math.exp(-x)) for x in (centre - half, centre + half))
    return _around(value, low, high)


def _variance(values: Floats, kept: Floats) -> float:
    times = np.diff(kept).astype(np.intp)
    return float(np.cov(values, fweights=times)) if times.sum() > 1 else 0.0


def _bootstrap(c: Curve, resamples: int, seed: int) -> dict[str, Interval]:
    drawn = np.concatenate([_rest(d) for d in _resampled(c, resamples, seed)], axis=-1)
    found = {}
    for name, value, values in zip(list(METRICS)[1:], _rest(c).tolist(), drawn, strict=True):
        low, high = np.quantile(values, [0.025, 0.975]).tolist()
        if name == "detection_error":
            # the minimum over thresholds is biased low, that of a resample twice as much: raising
            # the upper end by both lifts the coverage from between 50 and 80 % to 90 %
            high += 2 * max(0.0, value - float(values.mean()))
        # without overlap of the scores all resamples are equal, which does not mean certainty
        wide = _around(value, low, high) if low < high else wilson(value, min(c.n_in, c.n_out))
        found[name] = wide._replace(high=min(wide.high, 0.5)) if name == "detection_error" else wide
    return found


def _rest(c: Curve) -> Floats:
    """All of METRICS but AUROC, in its order; shape (5, ...)."""
    out = c.turned()
    return np.stack([_aupr_in(c), _aupr_in(out), _fpr_in(c), _fpr_in(out), _detection_error(c)])


def _resampled(c: Curve, resamples: int, seed: int) -> Iterator[Curve]:
    """Curves of scores drawn with replacement, each side by itself, a few resamples at a time."""
    at_in, at_out = c.kept_in.astype(np.intp), c.kept_out.astype(np.intp)
    for below_in, below_out in draws(c.n_in, c.n_out, resamples, seed):
        yield Curve(below_in.take(at_in, axis=1), below_out.take(at_out, axis=1))
