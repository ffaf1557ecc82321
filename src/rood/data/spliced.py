"""Halves of two images of different classes: outliers made of the training images."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rood import data
from rood.data._spec import counted
from rood.data.base import ImageSet, LoadOptions, Source
from rood.errors import InputError, expect

_FORM = "spliced:COUNT[,seed=0]@SPEC"
_OFF = 0.15  # of a side: how far from the middle the cut may pass


class Spliced(Source):
    """COUNT[,seed=0]@SPEC: COUNT images, each from two images of SPEC of different classes.

    A straight line of random direction through the middle divides them: one image on this side, the
    other on that. Textures and contours remain, classes do not. For training, as outliers near the
    data; two images in one are those of CutMix, Yun et al., arXiv:1905.04899.
    """

    def read(self, argument: str, options: LoadOptions) -> ImageSet:
        count, seed, spec = counted(argument, 1, _FORM)
        images = data.load(
            spec, shape=options.shape, skip_bad=options.skip_bad, groups=options.groups
        )
        if images.labels is None or int(images.labels.min()) < 0:
            raise InputError(f"expected labelled images in {spec!r}, got some without a label")
        classes = len(images.labels.unique())
        expect(classes >= 2, f"at least two classes in {spec!r}", classes)
        rng = np.random.default_rng([count, seed])
        return replace(
            images,
            images=spliced(images.images, images.labels.numpy(), count, rng),
            labels=None,
            classes=(),
            files=(),
            groups=(),
        ).thin(options.limit)


def spliced(
    x: Tensor, labels: NDArray[np.int64], count: int, rng: np.random.Generator
) -> Tensor:  # (n, c, h, w) to (count, c, h, w)
    """Pairs of different classes, cut along random lines."""
    first = rng.integers(len(x), size=count)
    second = np.array([rng.choice(np.flatnonzero(labels != labels[i])) for i in first])
    _, _, h, w = x.shape
    here = _sides(h, w, count, rng)[:, None]  # (count, 1, h, w)
    return torch.where(here, x[torch.from_numpy(first)], x[torch.from_numpy(second)])


def _sides(h: int, w: int, count: int, rng: np.random.Generator) -> Tensor:
    """Which pixels lie on one side of each line, (count, h, w)."""
    angle = rng.uniform(0, 2 * np.pi, (count, 1, 1))
    off = rng.uniform(-_OFF, _OFF, (count, 1, 1))
    down, right = (((np.arange(n) + 0.5) / n - 0.5) for n in (h, w))
    place = np.cos(angle) * down[:, None] + np.sin(angle) * right[None, :]
    return torch.from_numpy(place > off)
