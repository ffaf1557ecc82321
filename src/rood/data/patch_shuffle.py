"""Images with their patches in random order."""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import UInt64

from rood import data
from rood.data._spec import counted
from rood.data.base import ImageSet, LoadOptions, Source
from rood.errors import expect

_FORM = "patch_shuffle:SIDE[,seed=0]@SPEC"


class PatchShuffle(Source):
    """SIDE[,seed=0]@SPEC: the images of SPEC, cut into SIDE x SIDE patches in random order.

    Colours and textures remain, objects do not. The order depends on the seed and the content of
    the image. Labels are dropped: the images are outliers.
    """

    def read(self, argument: str, options: LoadOptions) -> ImageSet:
        side, seed, spec = counted(argument, 2, _FORM)
        images = data.load(
            spec, shape=options.shape, skip_bad=options.skip_bad, groups=options.groups
        )
        images = images.thin(options.limit)
        _, h, w = images.shape
        fits = h % side == 0 and w % side == 0
        expect(fits, f"images whose sides {side} divides", f"{h}x{w} in {argument!r}")
        return replace(
            images,
            images=shuffled(images.images, side, images.hashes(f"patch shuffle {seed}")),
            labels=None,
            classes=(),
            files=(),
        )


def shuffled(
    x: torch.Tensor, side: int, keys: UInt64[np.ndarray, " n"]
) -> torch.Tensor:  # (n, c, h, w) in and out
    """Permute the patches of every image by its key, never by the identity."""
    n, c, h, w = x.shape
    orders = torch.from_numpy(np.stack([_order(int(key), side**2) for key in keys]))  # (n, s^2)
    patches = x.view(n, c, side, h // side, side, w // side).permute(0, 2, 4, 1, 3, 5)
    patches = patches.reshape(n, side**2, c, h // side, w // side)
    moved = patches[torch.arange(n)[:, None], orders]
    moved = moved.view(n, side, side, c, h // side, w // side).permute(0, 3, 1, 4, 2, 5)
    return moved.reshape(n, c, h, w)


def _order(key: int, count: int) -> np.ndarray:
    order = np.random.default_rng(key).permutation(count)
    return np.roll(order, 1) if (order == np.arange(count)).all() else order
