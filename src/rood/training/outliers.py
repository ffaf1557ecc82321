"""Outliers to train against: sources joined, without ID classes, ID images and test images."""

from collections.abc import Sequence
from dataclasses import replace

from rood import data
from rood.data.base import ImageSet
from rood.data.contamination import equal, resembles, without_classes
from rood.data.joined import listed, together
from rood.errors import DataError


def load(
    spec: str, images: ImageSet, unseen: Sequence[ImageSet] = (), *, skip_bad: bool = False
) -> ImageSet:
    """The outliers SPEC[,SPEC...] for a network that is trained on `images`.

    Left out, and counted in the notes: classes of the network, duplicates of `images`, and exact or
    near duplicates of the sets that it will be tested on, `unseen`.
    """
    parts = [
        without_classes(data.load(s, shape=images.shape, skip_bad=skip_bad), images.classes)
        for s in listed(spec)
    ]
    joined = without_repeats(together(parts), images, unseen)
    if not len(joined):
        raise DataError(
            f"expected outliers in {spec!r}, but none is left: {'; '.join(joined.notes)}"
        )
    return joined


def without_repeats(
    outliers: ImageSet, images: ImageSet, unseen: Sequence[ImageSet] = ()
) -> ImageSet:
    """The outliers without duplicates of the images and near duplicates of unseen ones."""
    exact = equal(outliers, (images, *unseen))
    near = resembles(outliers, unseen) & ~exact
    notes = list(outliers.notes)
    for drop, what in (
        (exact, "trained or tested on as well"),
        (near, "nearly equal to one that is tested on"),
    ):
        if n := int(drop.sum()):
            notes.append(f"{n} {'image' if n == 1 else 'images'} left out: {what}")
    return replace(outliers.take(~(exact | near)), notes=tuple(notes))
