"""Warnings about an OOD set that is contaminated with ID images or with resizing artefacts.

An image in both sets makes even a perfect detector wrong. A set that was resized in another way
than the ID images can be recognised by the artefacts alone, as Tack et al., *CSI*, NeurIPS 2020,
arXiv:2007.08176, found for the resized LSUN and ImageNet sets.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from rood.data.base import Batches, ImageSet, at_once, spaced
from rood.shapes import Images

Numbers: TypeAlias = Float[Tensor, " n"]

SIDE = 8  # of the grey thumbnails that are compared
# RMS difference of two thumbnails in 8-bit steps, below which images are near duplicates. CIFAR-10
# test images differ from themselves by at most 3.3 after JPEG at quality 50, and by 3.7 (median)
# after resizing to 20x20 and back; from 30,000 CIFAR-100 and Tiny-ImageNet images by at least 5.2.
NEAR = 4.0
FLAT = 2 * NEAR  # standard deviation below which a thumbnail is too uniform to compare
ENOUGH = 300  # images per set whose detail is measured
REGULAR = 0.05  # share of columns that equal their neighbour
NOISE = 0.5  # share of fine detail above which an image is noise, not a resized photograph
CHUNK = 2048


def contamination(inside: Sequence[ImageSet], outside: ImageSet) -> tuple[str, ...]:
    """All warnings about `outside`, one sentence each."""
    return (*duplicates(inside, outside), *resizing(inside, outside))


def duplicates(inside: Sequence[ImageSet], outside: ImageSet) -> tuple[str, ...]:
    """Warnings about images in both sets: equal pixels, or near-equal grey thumbnails."""
    exact = equal(outside, inside)
    near = resembles(outside, inside) & ~exact
    said = []
    for what, which in (("are", exact), ("look the same as images that are", near)):
        if n := int(which.sum()):
            first = int(which.nonzero()[0])
            example = f", such as {outside.files[first]!r}" if outside.files else ""
            said.append(f"{n} of {len(outside)} images {what} in-distribution images too{example}")
    return tuple(said)


def resizing(inside: Sequence[ImageSet], outside: ImageSet) -> tuple[str, ...]:
    """Warnings about an amount of fine detail that ID images do not have."""
    ours = torch.cat([_measured(repeated, part) for part in inside]).median()
    if _measured(repeated, outside).median() > REGULAR > ours:
        return (
            "most images repeat columns of pixels, as enlarging by nearest neighbour does: "
            "a detector may see that and not what they show",
        )
    usual = torch.cat([_measured(detail, part) for part in inside])
    low, high = usual.quantile(torch.tensor([0.05, 0.95])).tolist()
    typical = float(_measured(detail, outside).median())
    if low <= typical <= high or typical > NOISE:
        return ()
    extent, why = ("less", "enlarged") if typical < low else ("more", "shrunk without smoothing")
    return (
        f"half of the images have {extent} fine detail than 95 % of the in-distribution images, as "
        f"if they had been {why}: a detector may see that and not what they show",
    )


def equal(images: ImageSet, others: Sequence[ImageSet]) -> Bool[Tensor, " n"]:
    """Which images have an exact copy among the others."""
    known = np.concatenate([np.empty(0, np.uint64), *(s.hashes() for s in others)])
    return torch.from_numpy(np.isin(images.hashes(), known))


def resembles(images: ImageSet, others: Sequence[ImageSet]) -> Bool[Tensor, " n"]:
    """Which images have a near duplicate, possibly mirrored, among the others."""
    found = torch.zeros(len(images), dtype=torch.bool)
    mine = thumbnails(images)
    shows = mine.square().mean(dim=1).sqrt() > FLAT  # uniform ones all look alike
    for other in others:
        theirs = thumbnails(other)
        theirs = torch.cat([theirs, theirs.view(-1, SIDE, SIDE).flip(2).flatten(1)])
        for start in range(0, len(mine) if len(theirs) else 0, CHUNK):
            part = slice(start, start + CHUNK)
            closest = torch.cdist(mine[part], theirs).amin(dim=1) / SIDE
            found[part] |= (closest < NEAR) & shows[part]
    return found


def thumbnails(images: ImageSet) -> Float[Tensor, "n 64"]:
    """8x8 grey thumbnails in 8-bit steps, minus their mean: brightness is ignored."""
    small = [adaptive_avg_pool2d(_grey(x), SIDE).flatten(1) for x, _ in _few_at_once(images)]
    all_of_them = 255 * torch.cat(small) if small else torch.empty(0, SIDE**2)
    return all_of_them - all_of_them.mean(dim=1, keepdim=True)


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


def detail(x: Images) -> Numbers:
    """Share of an image's energy above half the Nyquist frequency, in either direction."""
    grey = _grey(x)[:, 0]
    power = torch.fft.fft2(grey - grey.mean(dim=(1, 2), keepdim=True)).abs().square()
    down, across = (torch.fft.fftfreq(n).abs() for n in grey.shape[1:])
    fine = (down[:, None] > 0.25) | (across[None] > 0.25)
    total = power.sum(dim=(1, 2))
    return power[:, fine].sum(dim=1) / total.clamp_min(1e-12)


def repeated(x: Images) -> Numbers:
    """Share of an image's non-uniform columns that equal the column before them."""
    column = x.flatten(1, 2)  # (b, c * h, w)
    same = (column[:, :, 1:] == column[:, :, :-1]).all(dim=1)
    shows = (column.amax(dim=1) > column.amin(dim=1))[:, 1:]
    return (same & shows).sum(dim=1) / shows.sum(dim=1).clamp_min(1)


def _measured(measure: Callable[[Images], Numbers], images: ImageSet) -> Numbers:
    some = images.take(torch.tensor(spaced(len(images), ENOUGH)))
    return torch.cat([measure(x) for x, _ in _few_at_once(some)])


def _few_at_once(images: ImageSet) -> Batches:
    return images.batches(at_once(images.shape, CHUNK))


def _grey(x: Images) -> Float[Tensor, "b 1 h w"]:
    return x.mean(dim=1, keepdim=True)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


@cache
def _groups() -> list[frozenset[str]]:
    text = (files("rood.data") / "overlap.toml").read_text()
    return [frozenset(map(_plain, group)) for group in tomllib.loads(text)["groups"]]
