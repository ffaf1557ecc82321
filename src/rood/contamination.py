"""Signs that an out-of-distribution set is not what it should be: sentences for the report.

The same picture on both sides makes a perfect detector wrong. A set that was resized in another way
than the in-distribution images can be told from them by the resizing alone, whatever it shows: Tack
et al., *CSI*, NeurIPS 2020, arXiv:2007.08176, found so of the resized LSUN and ImageNet sets.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import interpolate

from rood.data.base import ImageSet, spaced
from rood.shapes import Images

Numbers: TypeAlias = Float[Tensor, " n"]

SIDE = 16  # of the grey thumbnail by which pictures are compared
NEAR = 0.02  # of the range of a pixel, in the mean square over the thumbnail
FLAT = 0.05  # standard deviation below which a thumbnail shows nothing to compare
ENOUGH = 1000  # images of a set whose detail is looked at
REGULAR = 0.05  # share of columns that repeat their neighbour
NOISE = 0.5  # share of fine detail from which an image is no resized picture
CHUNK = 2048


def contamination(inside: Sequence[ImageSet], outside: ImageSet) -> tuple[str, ...]:
    """Every sentence that applies to `outside`, beside the in-distribution sets."""
    return (*duplicates(inside, outside), *resizing(inside, outside))


def duplicates(inside: Sequence[ImageSet], outside: ImageSet) -> tuple[str, ...]:
    """Pictures that are on both sides: pixel by pixel, or as small grey thumbnails."""
    known = np.concatenate([part.hashes() for part in inside])
    exact = torch.from_numpy(np.isin(outside.hashes(), known))
    near = torch.zeros_like(exact)
    mine = thumbnails(outside)
    for part in inside:
        near |= _any_near(mine, thumbnails(part))
    near &= ~exact
    said = []
    for what, which in (("are", exact), ("look the same as images that are", near)):
        if n := int(which.sum()):
            first = int(which.nonzero()[0])
            example = f", such as {outside.files[first]!r}" if outside.files else ""
            said.append(f"{n} of {len(outside)} images {what} in-distribution images too{example}")
    return tuple(said)


def resizing(inside: Sequence[ImageSet], outside: ImageSet) -> tuple[str, ...]:
    """Fine detail that next to no in-distribution image has so little or so much of."""
    some = [_some(part) for part in inside]
    mine = _some(outside)
    ours = torch.cat([repeated(x) for x in some]).median()
    if repeated(mine).median() > REGULAR > ours:
        return (
            "most images repeat columns of pixels, as enlarging by nearest neighbour does: "
            "a detector may see that and not what they show",
        )
    low, high = torch.cat([detail(x) for x in some]).quantile(torch.tensor([0.05, 0.95])).tolist()
    typical = float(detail(mine).median())
    if low <= typical <= high or typical > NOISE:
        return ()
    extent, why = ("less", "enlarged") if typical < low else ("more", "shrunk without smoothing")
    return (
        f"half of the images have {extent} fine detail than 95 % of the in-distribution images, as "
        f"if they had been {why}: a detector may see that and not what they show",
    )


def thumbnails(images: ImageSet) -> Float[Tensor, "n d"]:
    """Small grey versions in [0, 1], one row an image."""
    parts = []
    for x, _ in images.batches(CHUNK):
        small = interpolate(_grey(x), (SIDE, SIDE), mode="bilinear", antialias=True)
        parts.append(small.flatten(1))
    return torch.cat(parts)


def detail(x: Images) -> Numbers:
    """Share of an image's energy beyond half the finest frequency, in either direction."""
    grey = _grey(x)[:, 0]
    power = torch.fft.fft2(grey - grey.mean(dim=(1, 2), keepdim=True)).abs().square()
    down, across = (torch.fft.fftfreq(n).abs() for n in grey.shape[1:])
    fine = (down[:, None] > 0.25) | (across[None] > 0.25)
    total = power.sum(dim=(1, 2))
    return power[:, fine].sum(dim=1) / total.clamp_min(1e-12)


def repeated(x: Images) -> Numbers:
    """Share of an image's columns, empty ones left out, that equal the column before them."""
    column = x.flatten(1, 2)  # (b, c * h, w)
    same = (column[:, :, 1:] == column[:, :, :-1]).all(dim=1)
    shows = (column.amax(dim=1) > column.amin(dim=1))[:, 1:]
    return (same & shows).sum(dim=1) / shows.sum(dim=1).clamp_min(1)


def _any_near(mine: Float[Tensor, "n d"], theirs: Float[Tensor, "m d"]) -> Bool[Tensor, " n"]:
    """Which rows have a near one among theirs; flat ones, which all look alike, never."""
    shows = mine.std(dim=1) > FLAT
    found = torch.zeros(len(mine), dtype=torch.bool)
    for start in range(0, len(theirs), CHUNK):
        distance = torch.cdist(mine, theirs[start : start + CHUNK])
        found |= (distance.amin(dim=1) < NEAR * SIDE) & shows
    return found


def _some(images: ImageSet) -> Images:
    return images.take(torch.tensor(spaced(len(images), ENOUGH))).pixels()


def _grey(x: Images) -> Images:
    return x.mean(dim=1, keepdim=True)
