"""Images to train against: several sources joined, without what the network must know or meet."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files

import torch

from rood import data
from rood.data.base import ImageSet
from rood.data.contamination import equal, resembles
from rood.errors import DataError


def load(
    spec: str, images: ImageSet, unseen: Sequence[ImageSet] = (), *, skip_bad: bool = False
) -> ImageSet:
    """The outliers SPEC[,SPEC...] for a network that is trained on `images`.

    Left out, and counted in the notes: classes that the network itself has, images that `images`
    holds too, and exact or near duplicates of the sets it is to be tested on, `unseen`.
    """
    parts = [
        without_classes(data.load(s, shape=images.shape, skip_bad=skip_bad), images.classes)
        for s in listed(spec)
    ]
    joined = without_repeats(_joined(parts), images, unseen)
    if not len(joined):
        raise DataError(
            f"expected outliers in {spec!r}, but none is left: {'; '.join(joined.notes)}"
        )
    return joined


def listed(spec: str) -> list[str]:
    """The specs in SPEC,SPEC: a comma ends one where the next kind of source is named."""
    kinds = "|".join(map(re.escape, data.registry.files))
    return [s.strip() for s in re.split(rf",(?=\s*(?:{kinds}):)", spec)]


def without_classes(outliers: ImageSet, classes: Iterable[str]) -> ImageSet:
    """The outliers that show none of the classes, by the names of both."""
    if outliers.labels is None or not outliers.classes:
        return outliers
    own = {_plain(c) for c in classes}
    own |= {name for group in _groups() if group & own for name in group}
    shared = [i for i, c in enumerate(outliers.classes) if _plain(c) in own and not c.isdecimal()]
    drop = torch.isin(outliers.labels, torch.tensor(shared, dtype=outliers.labels.dtype))
    if not bool(drop.any()):
        return outliers
    more = ", ..." if len(shared) > 8 else ""
    names = ", ".join(outliers.classes[i] for i in shared[:8]) + more
    note = f"{int(drop.sum())} images left out of classes that the network has too ({names})"
    return replace(outliers.take(~drop), notes=(*outliers.notes, note))


def without_repeats(
    outliers: ImageSet, images: ImageSet, unseen: Sequence[ImageSet] = ()
) -> ImageSet:
    """The outliers that repeat none of the images and resemble none of the unseen ones."""
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


def _joined(parts: Sequence[ImageSet]) -> ImageSet:
    if len(parts) == 1:
        return replace(parts[0], labels=None, classes=(), files=())
    eight_bit = all(p.images.dtype == torch.uint8 for p in parts)
    images = torch.cat([p.images if eight_bit else p.pixels() for p in parts])
    notes = tuple(f"{p.name}: {note}" for p in parts for note in p.notes)
    return ImageSet(name="+".join(p.name for p in parts), images=images, notes=notes)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


@cache
def _groups() -> list[frozenset[str]]:
    text = (files("rood.training") / "overlap.toml").read_text()
    return [frozenset(map(_plain, group)) for group in tomllib.loads(text)["groups"]]
