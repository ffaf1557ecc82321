"""Which attacked images a results folder keeps for the page."""

import numpy as np
from numpy.typing import NDArray

from rood.evaluation.rows import Arrays

EXTREMES = 2  # images with the largest change, and as many that resist most
CLASSES = 10  # of each one image
FEWER_CLASSES = 2  # where images are large
LARGE = 3 * 64 * 64  # values of an image beyond which it is large


def chosen(
    before: NDArray[np.floating],
    after: NDArray[np.floating],
    labels: NDArray[np.integer],
    *,
    sign: int,
    values: int,
) -> NDArray[np.intp]:
    """Places of one image per class, of the largest changes, and of those that resist most.

    To choose among what was chosen of several parts is to choose among all of them.

    sign: +1 where the attacker wants a high score, -1 where a low one. values: of one image.
    """
    goal = np.nan_to_num(sign * after.astype(np.float64))
    gain = np.nan_to_num(goal - np.nan_to_num(sign * before.astype(np.float64)))
    _, first = np.unique(labels, return_index=True)  # unlabelled images are a class of their own
    kept = [first[: FEWER_CLASSES if values > LARGE else CLASSES]]
    kept += [np.argsort(order, kind="stable")[:EXTREMES] for order in (-gain, goal)]
    return np.unique(np.concatenate(kept))


def joined(looks: Arrays, sign: int) -> Arrays:
    """The images to keep among those that were chosen of each part of a set."""
    original = looks["original"]
    which = chosen(
        looks["before"],
        looks["after"],
        looks["labels"],
        sign=sign,
        values=int(np.prod(original.shape[1:])),
    )
    return {name: array[which] for name, array in looks.items()}
