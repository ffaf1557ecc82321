"""95 % confidence intervals of the metrics, also near 0 and 1 and where images come in groups.

docs/evidence/intervals.md has the simulated coverage of every one.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rood.errors import InputError
from rood.metrics.ranking import (
    METRICS,
    Curve,
    Floats,
    aupr_of,
    auroc_of,
    curve,
    detection_error_of,
    detection_errors,
    false_alarm_at,
    fpr_of,
    lowest_share,
    missed_at,
    numbers,
)
from rood.metrics.resampling import Codes, draws, group_draws

Z = NormalDist().inv_cdf(0.975)  # of a two-sided 95 % interval
Ids = Sequence[object] | NDArray[Any]  # one per score
Groups = tuple[Ids | None, Ids | None]  # of the inside and the outside scores


class Interval(NamedTuple):
    """A number and its 95 % confidence interval."""

    value: float
    low: float
    high: float


def summary(
    inside: ArrayLike,
    outside: ArrayLike,
    threshold: float | None = None,  # fixed beforehand, on clean in-distribution images
    resamples: int = 1000,
    seed: int = 0,
    groups: Groups = (None, None),
) -> dict[str, Interval]:
    """Every metric with its 95 % interval; with a threshold, also the errors at it (`..._fixed`).

    AUROC and AUPR by their log-odds and influence function (DeLong), FPR95 by empirical likelihood,
    the detection error by Newcombe and the bootstrap's optimism, shares at a fixed threshold by
    Agresti and Coull. With groups, each interval is that of fewer images: their number is divided
    by the design effect, the variance under resampling of groups over that of images.

    Parameters
    ----------
    inside, outside : array_like of shape (n,), (m,)
        Scores of ID and of OOD images; higher means more OOD.
    threshold : float, optional
        Fixed beforehand, on clean ID images.
    resamples, seed : int
        Of the bootstrap.
    groups : (ids, ids)
        The group of each inside and of each outside image, such as its video; None where the
        images are independent.

    Examples
    --------
    >>> from rood.metrics import summary
    >>> found = summary(inside=range(100), outside=range(80, 180), threshold=95)
    >>> found["auroc"].value, found["fpr95_in_fixed"].value
    (0.98, 0.16)
    >>> videos = [i // 10 for i in range(100)]
    >>> grouped = summary(inside=range(100), outside=range(80, 180), groups=(videos, videos))
    >>> grouped["auroc"].low < found["auroc"].low
    True
    """
    if resamples < 1:
        raise InputError(f"expected at least one resample, got {resamples}: the default is 1000")
    c = curve(inside, outside)
    sides = [numbers(inside, "inside scores"), numbers(outside, "outside scores")]
    names = ("inside", "outside")
    codes = [coded(g, len(s), w) for g, s, w in zip(groups, sides, names, strict=True)]
    found = _ranked(c, sides, codes, resamples, seed)
    if threshold is not None:
        tau = float(numbers(threshold, "threshold"))
        missed = _share(sides[1] <= tau, missed_at(tau, outside=outside), codes[1])
        alarms = _share(sides[0] > tau, false_alarm_at(tau, inside=inside), codes[0])
        found["fpr95_in_fixed"] = missed
        found["fpr95_out_fixed"] = alarms
        found["detection_error_fixed"] = _half_sum(missed, alarms)
    return found


def wilson(share: float, n: int) -> Interval:
    """Wilson's 95 % score interval of a share observed among n.

    Examples
    --------
    >>> from rood.metrics import wilson
    >>> low, high = wilson(0.5, 100)[1:]
    >>> round(low, 3), round(high, 3)
    (0.404, 0.596)
    """
    centre = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * math.sqrt(share * (1 - share) / n + (Z / (2 * n)) ** 2)
    return _around(share, centre - half, centre + half)


def share_of(hits: ArrayLike, groups: Ids | None = None) -> Interval:
    """The share of hits and its interval, such as an accuracy; groups as in `summary`.

    Examples
    --------
    >>> from rood.metrics import share_of
    >>> alone, grouped = share_of([1, 0] * 50), share_of([1] * 50 + [0] * 50, [0] * 50 + [1] * 50)
    >>> alone.value == grouped.value, grouped.low < alone.low
    (True, True)
    """
    found = numbers(hits, "hits")
    return _share(found, float(found.mean()), coded(groups, found.size, "given"))


def coded(groups: Ids | None, n: int, side: str) -> Codes | None:
    """The groups of n images numbered from 0; None where each image stands for itself."""
    if groups is None:
        return None
    ids = [_hashable(g) for g in groups]
    if len(ids) != n:
        raise InputError(f"expected a group for each of the {n} {side} images, got {len(ids)}")
    if missing := sum(g is None or g == "" or g != g for g in ids):  # only NaN differs from itself
        raise InputError(
            f"expected a group for each of the {n} {side} images, got none for {missing}: "
            "give an image without group an id of its own"
        )
    numbered: dict[object, int] = {}
    codes = np.array([numbered.setdefault(g, len(numbered)) for g in ids], dtype=np.intp)
    if len(numbered) == 1 and n > 1:
        raise InputError(
            f"expected at least two groups of {side} images, got one ({ids[0]!r}): nothing says "
            "how groups differ, so give images of more groups or leave the groups out"
        )
    return codes if len(numbered) < n else None


def _hashable(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


# --- metrics of two sides


def _ranked(
    c: Curve, sides: Sequence[Floats], codes: Sequence[Codes | None], resamples: int, seed: int
) -> dict[str, Interval]:
    """The intervals of METRICS, each from as many images as the groups are worth."""
    values = dict(zip(METRICS, _metrics(c).tolist(), strict=True))
    if all(g is None for g in codes):
        effects = dict.fromkeys(METRICS, 1.0)
        drawn = _resampled(c, draws(c.n_in, c.n_out, resamples, seed))
        optimism = np.concatenate([_optimism(c, d) for d in drawn]).mean()
    else:
        effects, optimism = _grouped(c, sides, codes, resamples, seed)
    make: dict[str, Callable[[Curve], tuple[float, float]]] = {
        "auroc": _auroc_ends,
        "aupr_in": _aupr_ends,
        "aupr_out": lambda w: _aupr_ends(w.turned()),
        "fpr95_in": _fpr_ends,
        "fpr95_out": lambda w: _fpr_ends(w.turned()),
        "detection_error": lambda w: _error_ends(w, float(optimism)),
    }
    found = {}
    for name, ends in make.items():
        worth = Curve(c.kept_in / effects[name], c.kept_out / effects[name])
        found[name] = _around(values[name], *ends(worth))
    error = found["detection_error"]
    return found | {"detection_error": error._replace(high=min(error.high, 0.5))}


def _metrics(c: Curve) -> Floats:
    """All of METRICS in its order; shape (6, ...)."""
    out = c.turned()
    precisions, rates = [aupr_of(c), aupr_of(out)], [fpr_of(c), fpr_of(out)]
    return np.stack([auroc_of(c), *precisions, *rates, detection_error_of(c)])


def _odds_ends(
    spread: Callable[[Curve], tuple[float, float]], c: Curve, worse: Curve, better: Curve
) -> tuple[float, float]:
    """Both ends for a metric in [0, 1], of which `spread` gives the value and its variance.

    The hull of an interval on the log-odds scale and of one after adding images, as Agresti and
    Coull add successes and failures: `worse` and `better` are the curves with them. Where few
    scores are out of order, or none is, those seen say too little of those not seen.
    """
    (least, below), (most, above) = spread(worse), spread(better)
    low, high = least - Z * math.sqrt(below), most + Z * math.sqrt(above)
    value, variance = spread(c)
    if variance > 0 and 0 < value < 1:
        odds, half = math.log(value / (1 - value)), Z * math.sqrt(variance) / (value * (1 - value))
        low, high = min(low, _expit(odds - half)), max(high, _expit(odds + half))
    if low >= high:  # all scores are tied
        low, high = _share_ends(value, min(c.kept_in[-1], c.kept_out[-1]))
    return low, high


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def _auroc_ends(c: Curve) -> tuple[float, float]:
    """Both ends of AUROC; each side gets one image with the scores of the other side."""
    n, m = c.totals
    mixed = Curve(c.kept_in + c.kept_out / m, c.kept_out + c.kept_in / n)
    return _odds_ends(_auroc_spread, c, mixed, mixed)


def _auroc_spread(c: Curve) -> tuple[float, float]:
    """AUROC and its variance (DeLong et al. 1988)."""
    n, m = c.totals
    above = 1 - (c.kept_out[1:] + c.kept_out[:-1]) / (2 * m)  # outside scores above an inside one
    below = (c.kept_in[1:] + c.kept_in[:-1]) / (2 * n)
    return float(auroc_of(c)), _variance(above, c.kept_in) + _variance(below, c.kept_out)


def _aupr_ends(c: Curve) -> tuple[float, float]:
    """Both ends of the AUPR, on the scale from its least possible value to 1.

    With n positive and m negative images the least average precision is the mean of i / (i + m),
    and 1 - m/n log(1 + n/m) for infinitely many (Boyd et al. 2012): the difference is the bias of
    the estimate where it is low. The first few images decide most, so that a quarter of an image
    more on each side is added before and after all others.
    """
    n, m = c.totals[0].item(), c.totals[1].item()
    limit = 1 - m / n * math.log1p(n / m)
    least = 1 - m / n * math.log1p(n / (m + 0.5))  # the mean, by the midpoint rule

    def spread(curve: Curve) -> tuple[float, float]:
        value, variance = _aupr_spread(curve)
        return (value - least) / (1 - least), variance / (1 - least) ** 2

    worse = Curve(_added(c.kept_in, first=False), _added(c.kept_out, first=True))
    better = Curve(_added(c.kept_in, first=True), _added(c.kept_out, first=False))
    low, high = _odds_ends(spread, c, worse, better)
    return limit + (1 - limit) * max(0.0, low), limit + (1 - limit) * high


def _added(kept: Floats, *, first: bool, images: float = 0.25) -> Floats:
    """Counts with a part of an image more, which is accepted first or last of all."""
    return np.concatenate([[0.0], kept + images * first, kept[-1:] + images])


def _aupr_spread(c: Curve) -> tuple[float, float]:
    """Average precision and its variance by the influence of each score.

    AP = mean over inside scores of P = K / (K + L), K and L the numbers kept at that score. One
    more score changes K or L, and so P, at all thresholds from its own on.
    """
    n, m = c.totals[0].item(), c.totals[1].item()
    new, kept, both = np.diff(c.kept_in), c.kept_in[1:], c.kept_in[1:] + c.kept_out[1:]
    precision = kept / both
    onwards = lambda terms: terms[::-1].cumsum()[::-1]
    of_inside = precision + onwards(c.kept_out[1:] / both**2 * new)
    of_outside = -m / n * onwards(kept / both**2 * new)
    value = float((new * precision).sum() / n)
    return value, _variance(of_inside, c.kept_in) + _variance(of_outside, c.kept_out)


def _variance(values: Floats, kept: Floats) -> float:
    """Variance of the mean of values, each as often as scores are added to `kept`."""
    times, n = np.diff(kept), kept[-1]
    mean = (values * times).sum() / n
    # of a single score nothing is known but that the values lie between 0 and 1
    return float(((values - mean) ** 2 * times).sum() / (n * (n - 1))) if n > 1 else 0.25


def _fpr_ends(c: Curve, tpr: float = 0.95) -> tuple[float, float]:
    """Both ends by empirical likelihood (Claeskens et al. 2003, for points of the ROC curve).

    A threshold is possible while the log-likelihood ratio of "it accepts `tpr` of the inside" is
    within the limit of chi-squared; the rest of that limit is left for the share of the outside.
    """
    n, m = c.totals
    p = c.kept_in / n
    ratio = 2 * n * (_xlog(p, p / tpr) + _xlog(1 - p, (1 - p) / (1 - tpr)))
    left = np.maximum(Z**2 - ratio, 0)  # of the best threshold there may be none where n is small
    possible = (left > 0) | (ratio == ratio.min())
    low, high = _share_ends(c.kept_out[possible] / m, m, left[possible])
    return float(low.min()), float(high.max())


def _xlog(x: Floats, y: Floats) -> Floats:
    return x * np.log(np.where(x > 0, y, 1))


def _error_ends(c: Curve, optimism: float) -> tuple[float, float]:
    """Both ends of the least error.

    The low one is the lowest that Newcombe's interval of a fixed threshold has at any threshold:
    one of them is the best. The high one is that at the best threshold of these scores, plus the
    optimism of choosing it by the same scores.
    """
    n, m = c.totals
    alarms, missed = 1 - c.kept_in / n, c.kept_out / m
    low, high = _half_sum_ends((alarms, *_share_ends(alarms, n)), (missed, *_share_ends(missed, m)))
    best = detection_errors(c).argmin()
    return float(low.min()), float(high[best]) + max(0.0, optimism)


def _optimism(c: Curve, drawn: Curve) -> Floats:
    """How much lower the least error of each resample is than the error there of all scores."""
    errors = detection_errors(drawn)
    return detection_errors(c)[errors.argmin(axis=-1)] - errors.min(axis=-1)


def _resampled(c: Curve, drawn: Iterator[tuple[Floats, Floats]]) -> Iterator[Curve]:
    """Curves of scores drawn with replacement, each side by itself, a few resamples at a time."""
    at_in, at_out = c.kept_in.astype(np.intp), c.kept_out.astype(np.intp)
    for below_in, below_out in drawn:
        yield Curve(below_in.take(at_in, axis=1), below_out.take(at_out, axis=1))


# --- images in groups


def _grouped(
    c: Curve, sides: Sequence[Floats], codes: Sequence[Codes | None], resamples: int, seed: int
) -> tuple[dict[str, float], float]:
    """The design effect of each metric, and the optimism of the least error."""
    ordered = [
        np.arange(s.size) if g is None else g[s.argsort(kind="stable")]
        for s, g in zip(sides, codes, strict=True)
    ]
    values, optimism = [], []
    for drawn in _resampled(c, group_draws(ordered[0], ordered[1], resamples, seed)):
        d = _rescaled(drawn, c)
        values.append(_metrics(d))
        optimism.append(_optimism(c, d))
    alone = [_metrics(d) for d in _resampled(c, draws(c.n_in, c.n_out, resamples, seed))]
    spread, lone = (np.concatenate(v, axis=-1).var(axis=-1) for v in (values, alone))
    counts = [int(g.max()) + 1 for g in ordered]
    # without any spread, as at perfect separation, all images of a group count as one
    most = max(g.size / n for g, n in zip(ordered, counts, strict=True))
    ratios = np.where(lone > 0, spread / np.where(lone > 0, lone, 1), most)
    few = _few(min(counts))
    effects = {k: max(1.0, float(r)) * few for k, r in zip(METRICS, ratios, strict=True)}
    for name, hits in _accepted(sides).items():
        # a share at a rank of few images moves in steps, which blur the ratio of variances
        of_sides = [_effect(h, g) for h, g in zip(hits, codes, strict=True)]
        effects[name] = max(effects[name], *of_sides)
    return effects, float(np.concatenate(optimism).mean())


def _rescaled(drawn: Curve, c: Curve) -> Curve:
    """Resampled groups, weighted to as many images as there are: AUPR depends on the ratio."""
    n, m = drawn.totals
    return Curve(drawn.kept_in * (c.n_in / n), drawn.kept_out * (c.n_out / m))


def _accepted(sides: Sequence[Floats]) -> dict[str, list[NDArray[np.bool_]]]:
    """Which images of each side the thresholds of both FPR95 accept as positive."""
    inside, outside = sides
    low, high = lowest_share(inside), -lowest_share(-outside)
    return {"fpr95_in": [s <= low for s in sides], "fpr95_out": [s >= high for s in sides]}


def _share(hits: NDArray[Any], value: float, codes: Codes | None) -> Interval:
    """The interval of a share; with groups, among as many images as they are worth."""
    return _share_interval(value, hits.size / _effect(hits, codes))


def _effect(hits: NDArray[Any], codes: Codes | None) -> float:
    """The design effect of a share: variance of its sums over groups, over that of a binomial."""
    if codes is None:
        return 1.0
    n, g, value = hits.size, int(codes.max()) + 1, hits.mean()
    sums, alone = np.bincount(codes, hits - value), n * value * (1 - value)
    ratio = float((sums**2).sum() / alone) if alone > 0 else n / g
    return max(1.0, ratio) * _few(g)


def _few(groups: int) -> float:
    """The factor on a variance that is estimated from few groups: Student's t and their freedom."""
    from scipy.special import stdtrit  # not needed without groups

    return float((stdtrit(groups - 1, 0.975) / Z) ** 2) * groups / (groups - 1)


# --- shares


def _share_ends(share: Any, n: Any, z2: Any = Z**2) -> tuple[Any, Any]:
    """Agresti and Coull's interval: around Wilson's, which covers too little near 0 and 1."""
    centre = (n * share + z2 / 2) / (n + z2)
    half = np.sqrt(z2 * centre * (1 - centre) / (n + z2))
    return np.maximum(centre - half, 0), np.minimum(centre + half, 1)


def _share_interval(share: float, n: float) -> Interval:
    low, high = _share_ends(share, n)
    return _around(share, float(low), float(high))


def _half_sum(a: Interval, b: Interval) -> Interval:
    low, high = _half_sum_ends(a, b)
    return _around((a.value + b.value) / 2, float(low), float(high))


def _half_sum_ends(a: tuple[Any, Any, Any], b: tuple[Any, Any, Any]) -> tuple[Any, Any]:
    """Newcombe's interval of (a + b) / 2 from value, low and high of two independent shares."""
    value = (a[0] + b[0]) / 2
    below, above = np.hypot(a[0] - a[1], b[0] - b[1]), np.hypot(a[2] - a[0], b[2] - b[0])
    return value - below / 2, value + above / 2


def _around(value: float, low: float, high: float) -> Interval:
    return Interval(value, max(0.0, min(value, low)), min(1.0, max(value, high)))
