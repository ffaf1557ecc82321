"""How well a classifier with a detector does on known and unknown classes together."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rood.errors import InputError
from rood.metrics.intervals import Groups, Ids, Interval, share_of, summary
from rood.metrics.ranking import auroc, numbers


def oscr(*, inside: ArrayLike, right: ArrayLike, outside: ArrayLike) -> float:
    """OSCR: area under the correct classification rate (CCR) against the false positive rate.

    CCR(τ) = P(s_in <= τ and the predicted class is right), FPR(τ) = P(s_out <= τ), over all τ; so
    OSCR = P(right and s_out > s_in) + P(right and s_out = s_in) / 2, at most the accuracy and equal
    to the AUROC where every class is right. Dhamija, Günther & Boult, *Reducing Network
    Agnostophobia*, arXiv:1811.04110; as one number in Vaze et al., arXiv:2110.06207.

    Parameters
    ----------
    inside, outside : array_like of shape (n,), (m,)
        Scores of ID and of OOD images; higher means more OOD.
    right : array_like of shape (n,)
        Whether the predicted class of each ID image is right.

    Examples
    --------
    >>> from rood.metrics import oscr
    >>> oscr(inside=[0.1, 0.2, 0.6, 0.3], right=[True, True, True, False], outside=[0.5, 0.9])
    0.625
    """
    return auroc(
        inside=last_where_wrong(inside, right, outside), outside=_ranks(inside, outside)[1]
    )


def oscr_interval(
    inside: ArrayLike,
    right: ArrayLike,
    outside: ArrayLike,
    *,
    seed: int = 0,
    groups: Groups = (None, None),
) -> Interval:
    """OSCR with its 95 % interval, that of an AUROC where wrong ID images come last of all.

    Examples
    --------
    >>> from rood.metrics import oscr_interval
    >>> found = oscr_interval(range(100), [True] * 90 + [False] * 10, range(80, 180))
    >>> round(found.value, 3), found.low < found.value < found.high
    (0.895, True)
    """
    s_in, s_out = last_where_wrong(inside, right, outside), _ranks(inside, outside)[1]
    return auroc_interval(s_in, s_out, seed=seed, groups=groups)


def auroc_interval(
    inside: ArrayLike, outside: ArrayLike, *, seed: int = 0, groups: Groups = (None, None)
) -> Interval:
    """AUROC alone with its interval, as `summary` has it."""
    # without groups no resample enters the interval of an AUROC
    resamples = 1 if all(g is None for g in groups) else 1000
    return summary(inside, outside, resamples=resamples, seed=seed, groups=groups)["auroc"]


def ccr_at(
    threshold: float, *, inside: ArrayLike, right: ArrayLike, groups: Ids | None = None
) -> Interval:
    """Accuracy at a threshold fixed beforehand: share of ID images accepted and right.

    Examples
    --------
    >>> from rood.metrics import ccr_at
    >>> ccr_at(0.5, inside=[0.1, 0.2, 0.6, 0.3], right=[True, True, True, False]).value
    0.5
    """
    accepted = numbers(inside, "inside scores") <= float(numbers(threshold, "threshold"))
    return share_of(accepted & _flags(right, accepted.size), groups)


def last_where_wrong(
    inside: ArrayLike, right: ArrayLike, outside: ArrayLike
) -> NDArray[np.float64]:
    """Ranks of the ID scores among all; images with a wrong class are behind every other."""
    ranks, others = _ranks(inside, outside)
    flags = _flags(right, ranks.size)
    return np.where(flags, ranks, max(ranks.max(initial=0), others.max(initial=0)) + 1)


def _ranks(inside: ArrayLike, outside: ArrayLike) -> tuple[NDArray[np.float64], ...]:
    """The place of each score among all distinct ones; infinite scores have one too."""
    sides = [numbers(inside, "inside scores"), numbers(outside, "outside scores")]
    places = np.unique(np.concatenate(sides), return_inverse=True)[1].astype(np.float64)
    return places[: sides[0].size], places[sides[0].size :]


def _flags(right: ArrayLike, n: int) -> NDArray[np.bool_]:
    if hasattr(right, "detach"):
        right = right.detach().cpu().numpy()
    flags = np.asarray(right)
    if flags.dtype != bool or flags.shape != (n,):
        raise InputError(
            f"expected right as {n} truth values, one per ID image, got {flags.dtype} of shape "
            f"{flags.shape}: write predicted == labels"
        )
    return flags
