"""Halves of two images of different classes: outliers made of the training images."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from rood import data
from rood.data._spec import counted
from rood.data.base import ImageSet, LoadOptions, Source
from rood.errors import InputError, expect

_FORM = "spliced:COUNT[,seed=0]@SPEC"
Join = Callable[[Tensor, Tensor, np.random.Generator], Tensor]
_OFF = 0.15  # of a side: how far from the middle the cut may pass


class Spliced(Source):
    """COUNT[,seed=0]@SPEC: COUNT images, each from two images of SPEC of different classes.

    A straight line of random direction through the middle divides them: one image on this side, the
    other on that. Textures and contours remain, classes do not. For training, as outliers near the
    data; two images in one are those of CutMix, Yun et al., arXiv:1905.04899.
    """

    def read(self, argument: str, options: LoadOptions) -> ImageSet:
        return paired(argument, options, _FORM, spliced)


def paired(argument: str, options: LoadOptions, form: str, join: Join) -> ImageSet:
    """COUNT images, each made of a pair of different classes, for COUNT[,seed=0]@SPEC."""
    count, seed, spec = counted(argument, 1, form)
    images = data.load(spec, shape=options.shape, skip_bad=options.skip_bad, groups=options.groups)
    if images.labels is None or int(images.labels.min()) < 0:
        raise InputError(f"expected labelled images in {spec!r}, got some without a label")
    labels = images.labels.numpy()
    classes = len(np.unique(labels))
    expect(classes >= 2, f"at least two classes in {spec!r}", classes)
    rng = np.random.default_rng([count, seed])
    first = rng.integers(len(labels), size=count)
    second = np.array([rng.choice(np.flatnonzero(labels != labels[i])) for i in first])
    x = images.images
    return replace(
        images,
        images=join(x[torch.from_numpy(first)], x[torch.from_numpy(second)], rng),
        labels=None,
        classes=(),
        files=(),
        groups=(),
    ).thin(options.limit)


def spliced(first: Tensor, second: Tensor, rng: np.random.Generator) -> Tensor:  # (n, c, h, w)
    """Pairs of images, cut along random lines."""
    n, _, h, w = first.shape
    here = _sides(h, w, n, rng)[:, None]  # (n, 1, h, w)
    return torch.where(here, first, second)


def _sides(h: int, w: int, count: int, rng: np.random.Generator) -> Tensor:
    """Which pixels lie on one side of each line, (count, h, w)."""
    angle = rng.uniform(0, 2 * np.pi, (count, 1, 1))
    off = rng.uniform(-_OFF, _OFF, (count, 1, 1))
    down, right = (((np.arange(n) + 0.5) / n - 0.5) for n in (h, w))
    place = np.cos(angle) * down[:, None] + np.sin(angle) * right[None, :]
    return torch.from_numpy(place > off)
