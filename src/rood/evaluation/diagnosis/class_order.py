"""Are the class folders in the order of the network's outputs?"""

import re
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from rood.evaluation.diagnosis.base import (
    Diagnosis,
    NetworkCheck,
    Right,
    Setup,
    Subject,
    percent,
    surely_better,
)

SHOWN = 12  # classes that a sentence names
OWN = 1e-3  # of an image: a class without images keeps its number

Numbers = NDArray[np.int64]


class ClassOrder(NetworkCheck):
    """Accuracy under the best assignment of labels to outputs (Hungarian method).

    The assignment is found on one half of the images and judged on the other.
    """

    place = 5

    def look_at(self, subject: Subject, setup: Setup) -> Iterator[Diagnosis]:
        if not subject.labelled:
            return
        ours, theirs = subject.images.classes, tuple(subject.card.get("classes", ()))
        if wrong := _other_places(ours, theirs):
            yield self.fail(
                f"expected class folders in the order of the outputs, got {wrong}",
                _rename(dict(enumerate(theirs))),
                subject.name,
            )
            return
        y, k = subject.some.labels, subject.model.classes
        assert y is not None
        labels, given = y.numpy(), subject.logits.argmax(dim=1).numpy()
        if labels.max() >= k:  # `class_folders` says so
            return
        if not surely_better(new := _judged(labels, given, k), subject.right):
            yield self.ok("no other order of the classes fits better", subject.name)
            return
        best = _assigned(labels, given, k)
        moved = {int(best[i]): i for i in np.unique(labels).tolist()}
        yield self.fail(
            f"expected class folders in the order of the outputs, got accuracy "
            f"{percent(subject.right)} as they are and {percent(new)} in another order",
            _rename({o: ours[i] for o, i in moved.items()}) if ours else _relabel(moved),
            subject.name,
        )


def _judged(labels: Numbers, given: Numbers, k: int) -> Right:
    """Which images are right where each half is assigned by what the other half shows."""
    right = np.zeros(len(labels), dtype=bool)
    half = np.arange(len(labels)) % 2 == 0
    for known in (half, ~half):
        best = _assigned(labels[known], given[known], k)
        right[~known] = best[labels[~known]] == given[~known]
    return right


def _assigned(labels: Numbers, given: Numbers, k: int) -> Numbers:
    """For each label, the output that stands for it."""
    confusion = OWN * np.eye(k)
    np.add.at(confusion, (labels, given), 1.0)
    return linear_sum_assignment(confusion, maximize=True)[1]


def _other_places(ours: Sequence[str], theirs: Sequence[str]) -> str:
    """The class folders that have another number than the output of the same name."""
    place = {_plain(name): i for i, name in enumerate(theirs)}
    known = [(i, name) for i, name in enumerate(ours) if _plain(name) in place]
    wrong = [f"{n!r} as {i} for {j}" for i, n in known if (j := place[_plain(n)]) != i]
    return _some(wrong)


def _rename(names: dict[int, str]) -> str:
    """What to call the folders, so that alphabetical order is that of the outputs."""
    width = len(str(max(names)))
    return "rename them to " + _some([f"{i:0{width}}_{names[i]}" for i in sorted(names)])


def _relabel(labels: dict[int, int]) -> str:
    return "the labels of outputs 0, 1, ... seem to be " + _some(
        [str(labels[i]) for i in sorted(labels)]
    )


def _some(words: Sequence[str]) -> str:
    return ", ".join(words[:SHOWN]) + (", ..." if len(words) > SHOWN else "")


def _plain(name: str) -> str:
    """A name without the number that keeps its place."""
    return re.sub(r"[\W_]", "", re.sub(r"^\d+[_ -]", "", name.lower()))
