"""Images to train against: several sources joined, without what the network must know or meet."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from rood import data
from rood.data.base import ImageSet
from rood.errors import DataError

# Root mean square of what two thumbnails differ by, in 8-bit steps. Measured on CIFAR-10's test
# images: after JPEG at quality 50 an image is at most 3.3 from itself, after 20x20 and back 3.7
# in the median; of the pairs with 30,000 CIFAR-100 and Tiny-ImageNet images none is below 5.2.
NEAR = 4.0
_SIDE = 8
_CHUNK = 2000


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
    known = np.concatenate([s.hashes() for s in (images, *unseen)])
    exact = torch.from_numpy(np.isin(outliers.hashes(), known))
    near = resembles(outliers, unseen) & ~exact
    notes = list(outliers.notes)
    for drop, what in (
        (exact, "trained or tested on as well"),
        (near, "nearly equal to one that is tested on"),
    ):
        if n := int(drop.sum()):
            notes.append(f"{n} {'image' if n == 1 else 'images'} left out: {what}")
    return replace(outliers.take(~(exact | near)), notes=tuple(notes))


def resembles(images: ImageSet, others: Sequence[ImageSet]) -> Bool[Tensor, " n"]:
    """Which images have a near duplicate, mirrored or not, among the others."""
    found = torch.zeros(len(images), dtype=torch.bool)
    mine = thumbnails(images)
    for other in others:
        theirs = thumbnails(other)
        theirs = torch.cat([theirs, theirs.view(-1, _SIDE, _SIDE).flip(2).flatten(1)])
        for start in range(0, len(mine), _CHUNK):
            part = slice(start, start + _CHUNK)
            closest = torch.cdist(mine[part], theirs).amin(dim=1) / _SIDE
            found[part] |= closest < NEAR
    return found


def thumbnails(images: ImageSet) -> Float[Tensor, "n 64"]:
    """8x8 grey thumbnails in 8-bit steps, less their mean: a change of brightness is no change."""
    parts = [
        adaptive_avg_pool2d(x.mean(dim=1, keepdim=True), _SIDE).flatten(1)
        for x, _ in images.batches(_CHUNK)
    ]
    small = 255 * torch.cat(parts) if parts else torch.empty(0, _SIDE**2)
    return small - small.mean(dim=1, keepdim=True)


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
