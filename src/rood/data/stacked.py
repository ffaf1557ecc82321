"""Two images of different classes squeezed into one: outliers made of the training images."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from rood.data.base import ImageSet, LoadOptions, Source
from rood.data.spliced import paired

_FORM = "stacked:COUNT[,seed=0]@SPEC"
_LEAST = 0.35  # of a side: what an image is squeezed to at least


class Stacked(Source):
    """COUNT[,seed=0]@SPEC: COUNT images, each two whole ones of SPEC of different classes.

    Both are squeezed, one above the other or, less often, side by side: parts are where they could
    be in another class, classes are not. For training, as outliers near the data, like `spliced`.
    """

    def read(self, argument: str, options: LoadOptions) -> ImageSet:
        return paired(argument, options, _FORM, stacked)


def stacked(first: Tensor, second: Tensor, rng: np.random.Generator) -> Tensor:  # (n, c, h, w)
    """Pairs of images, squeezed and joined."""
    n = len(first)
    shares, above = rng.uniform(_LEAST, 1 - _LEAST, n), rng.random(n) < 2 / 3
    found = [
        _joined(first[i : i + 1], second[i : i + 1], float(shares[i]), 2 if above[i] else 3)
        for i in range(n)
    ]
    return torch.cat(found)


def _joined(first: Tensor, second: Tensor, share: float, dim: int) -> Tensor:
    """The first in a share of a dimension, the second in the rest."""
    side = first.shape[dim]
    cut = min(max(1, round(share * side)), side - 1)
    parts = [_squeezed(x, n, dim) for x, n in ((first, cut), (second, side - cut))]
    return torch.cat(parts, dim=dim)


def _squeezed(x: Tensor, n: int, dim: int) -> Tensor:
    size = [n if d == dim else x.shape[d] for d in (2, 3)]
    small = interpolate(x.float(), size, mode="area")
    return small.round().to(x.dtype) if x.dtype == torch.uint8 else small.to(x.dtype)
