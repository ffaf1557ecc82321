"""Classes filled up to one size with distorted copies of their images."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import grid_sample

from rood import data
from rood.data._spec import nested, whole
from rood.data.base import ImageSet, LoadOptions, Source
from rood.errors import InputError

_FORM = "balanced:COUNT@SPEC"
_CHUNK = 1024

# for 32x32 images; scaled with the image size
_TURN = np.deg2rad(15)
_SHIFT = 2.5 / 32
_CORNER, _STRENGTH = 9.6 / 32, 0.8


class Balanced(Source):
    """COUNT@SPEC: the images of SPEC, each class filled up to COUNT with distorted copies.

    All originals are kept. Copies are made of each image of a class in turn: rotated by up to 15
    degrees, shifted by up to 2.5 of 32 pixels, with a random perspective, in one resampling. For
    training only, as Chen et al., arXiv:2003.09711, do for GTSRB.
    """

    def read(self, argument: str, options: LoadOptions) -> ImageSet:
        number, spec = nested(argument, _FORM)
        count = whole(number, 1, _FORM, argument)
        images = data.load(
            spec, shape=options.shape, skip_bad=options.skip_bad, groups=options.groups
        )
        if images.labels is None or int(images.labels.min()) < 0:
            raise InputError(f"expected labelled images in {spec!r}, got some without a label")
        return balance(images, count)


def balance(images: ImageSet, count: int) -> ImageSet:
    """Fill up every class that has an image to at least `count`."""
    assert images.labels is not None
    missing = _missing(images.labels.numpy(), count)
    keys = images.hashes("balance")[missing]
    rounds = _occurrences(missing)
    rngs = [np.random.default_rng([int(k), r]) for k, r in zip(keys, rounds, strict=True)]
    which = torch.from_numpy(missing)
    copies = [
        distorted(
            images.images[which[i : i + _CHUNK]],
            [Distortion.drawn(g) for g in rngs[i : i + _CHUNK]],
        )
        for i in range(0, len(which), _CHUNK)
    ]
    note = f"{len(which)} distorted copies added, so that every class has {count} images"
    return replace(
        images,
        images=torch.cat([images.images, *copies]),
        labels=torch.cat([images.labels, images.labels[which]]),
        files=(),
        groups=images.groups + tuple(images.groups[i] for i in missing if images.groups),
        notes=(*images.notes, note) if len(which) else images.notes,
    )


@dataclass(frozen=True)
class Distortion:
    """Rotation, shift and perspective of an image with sides of length 1."""

    turn: float  # radians
    shift: NDArray[np.float64]  # (2,): right, down
    corners: NDArray[np.float64]  # (4, 2): displacement of each corner

    @staticmethod
    def drawn(rng: np.random.Generator) -> "Distortion":
        """A random distortion."""
        turn, shift = rng.uniform(-_TURN, _TURN), rng.uniform(-_SHIFT, _SHIFT, 2)
        reach = _CORNER * rng.uniform(0, _STRENGTH)
        return Distortion(float(turn), shift, rng.uniform(-reach, reach, (4, 2)))


def distorted(x: Tensor, distortions: list[Distortion]) -> Tensor:  # (n, c, h, w) in and out
    """The distorted images, in one bilinear resampling; black where the shift leaves nothing."""
    n, c, h, w = x.shape
    places, black = _sources(distortions, h, w)
    grid = torch.from_numpy(places * 2 - 1).float()
    pixels = grid_sample(x.float(), grid, padding_mode="border", align_corners=False)
    pixels[torch.from_numpy(black)[:, None].expand(n, c, h, w)] = 0
    # rounding may exceed the range
    return pixels.clamp(0, 255 if x.dtype == torch.uint8 else 1).to(x.dtype)


def _sources(
    distortions: list[Distortion], h: int, w: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The source of each pixel, (n, h, w, 2) in units of the image, and which pixels are black."""
    y, x = np.mgrid[0:h, 0:w]
    at = np.stack([(x + 0.5) / w, (y + 0.5) / h, np.ones((h, w))], axis=-1).reshape(-1, 3)
    askew = _homographies(np.stack([d.corners for d in distortions]))
    seen = at @ askew.transpose(0, 2, 1)  # (n, h w, 3)
    seen = np.clip(seen[..., :2] / seen[..., 2:], 0, 1)  # replicate the border
    moved = seen - np.stack([d.shift for d in distortions])[:, None]
    black = ((moved < 0) | (moved > 1)).any(axis=-1)
    cos, sin = (f(np.array([d.turn for d in distortions])) for f in (np.cos, np.sin))
    turn = np.stack([cos, -sin, sin, cos], axis=-1).reshape(-1, 2, 2)
    places = (moved - 0.5) @ turn + 0.5
    return places.reshape(-1, h, w, 2), black.reshape(-1, h, w)


def _homographies(jitter: NDArray[np.float64]) -> NDArray[np.float64]:
    """The projective maps that displace the corners of the unit square by `jitter`, (n, 4, 2)."""
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.float64)
    equations, right = np.zeros((len(jitter), 8, 8)), np.zeros((len(jitter), 8, 1))
    for i, (x, y) in enumerate(corners):
        for axis in (0, 1):
            to = corners[i, axis] + jitter[:, i, axis]
            equations[:, 2 * i + axis, 3 * axis : 3 * axis + 3] = x, y, 1
            equations[:, 2 * i + axis, 6:] = -to[:, None] * (x, y)
            right[:, 2 * i + axis, 0] = to
    solved = np.linalg.solve(equations, right)[:, :, 0]
    return np.concatenate([solved, np.ones((len(jitter), 1))], axis=1).reshape(-1, 3, 3)


def _missing(labels: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Indices of the images to copy, cycling through each class until it is full."""
    found = [
        np.resize(places, max(0, count - len(places)))
        for label in np.unique(labels)
        for places in [np.flatnonzero(labels == label)]
    ]
    return np.concatenate(found)


def _occurrences(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each index occurs before its position."""
    seen: dict[int, int] = {}
    counts = []
    for place in places.tolist():
        counts.append(seen.get(place, 0))
        seen[place] = counts[-1] + 1
    return np.array(counts, np.int64)
