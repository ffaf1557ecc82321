"""Classes filled up to one size with bent copies of their images."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import grid_sample

from rood.data._nested import divided, inner, whole
from rood.data.base import ImageSet, Shape, Source
from rood.errors import InputError

_FORM = "balanced:COUNT@SPEC"
_CHUNK = 1024

# of a 32x32 image; larger ones are bent in proportion
_TURN = np.deg2rad(15)
_SHIFT = 2.5 / 32
_CORNER, _STRENGTH = 9.6 / 32, 0.8


class Balanced(Source):
    """Another source's images, each class filled up to COUNT with bent copies: COUNT@SPEC.

    All originals stay. The copies go round the class; each is turned by up to 15 degrees, moved by
    up to 2.5 pixels of 32, and seen askew. To train on alone: a copy in a test would be a repeat.
    How Chen et al., arXiv:2003.09711, fill up the classes of GTSRB, in one resampling.
    """

    def load(
        self,
        argument: str,
        *,
        shape: Shape | None = None,
        limit: int | None = None,
        skip_bad: bool = False,
    ) -> ImageSet:
        number, spec = divided(argument, _FORM)
        count = whole(number, 1, _FORM, argument)
        images = inner(spec, shape, skip_bad)
        if images.labels is None or int(images.labels.min()) < 0:
            raise InputError(f"expected labelled images in {spec!r}, got some without a label")
        return balance(images, count).thin(limit)


def balance(images: ImageSet, count: int) -> ImageSet:
    """At least `count` images in every class, where there is one."""
    assert images.labels is not None
    missing = _missing(images.labels.numpy(), count)
    keys = images.hashes("balance")[missing]
    rounds = _occurrences(missing)
    rngs = [np.random.default_rng([int(k), r]) for k, r in zip(keys, rounds, strict=True)]
    which = torch.from_numpy(missing)
    copies = [
        bent(images.images[which[i : i + _CHUNK]], [Bend.drawn(g) for g in rngs[i : i + _CHUNK]])
        for i in range(0, len(which), _CHUNK)
    ]
    note = f"{len(which)} bent copies added, so that every class has {count} images"
    return replace(
        images,
        images=torch.cat([images.images, *copies]),
        labels=torch.cat([images.labels, images.labels[which]]),
        files=(),
        notes=(*images.notes, note) if len(which) else images.notes,
    )


@dataclass(frozen=True)
class Bend:
    """One way to bend an image of sides 1: turned, moved, then seen askew."""

    turn: float  # radians
    shift: NDArray[np.float64]  # (2,): right, down
    corners: NDArray[np.float64]  # (4, 2): where the corners look

    @staticmethod
    def drawn(rng: np.random.Generator) -> "Bend":
        """A bend at random."""
        turn, shift = rng.uniform(-_TURN, _TURN), rng.uniform(-_SHIFT, _SHIFT, 2)
        reach = _CORNER * rng.uniform(0, _STRENGTH)
        return Bend(float(turn), shift, rng.uniform(-reach, reach, (4, 2)))


def bent(x: Tensor, bends: list[Bend]) -> Tensor:  # (n, c, h, w) in and out
    """The images bent, in one bilinear resampling; what is moved in from outside is black."""
    n, c, h, w = x.shape
    places, black = _sources(bends, h, w)
    grid = torch.from_numpy(places * 2 - 1).float()
    pixels = grid_sample(x.float(), grid, padding_mode="border", align_corners=False)
    pixels[torch.from_numpy(black)[:, None].expand(n, c, h, w)] = 0
    # a sum of four weights may exceed what it averages by a rounding error
    return pixels.clamp(0, 255 if x.dtype == torch.uint8 else 1).to(x.dtype)


def _sources(bends: list[Bend], h: int, w: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Where each pixel comes from, (n, h, w, 2) in units of the image, and which ones are black."""
    y, x = np.mgrid[0:h, 0:w]
    at = np.stack([(x + 0.5) / w, (y + 0.5) / h, np.ones((h, w))], axis=-1).reshape(-1, 3)
    askew = _homographies(np.stack([b.corners for b in bends]))
    seen = at @ askew.transpose(0, 2, 1)  # (n, h w, 3)
    seen = np.clip(seen[..., :2] / seen[..., 2:], 0, 1)  # beyond the edge, the edge again
    moved = seen - np.stack([b.shift for b in bends])[:, None]
    black = ((moved < 0) | (moved > 1)).any(axis=-1)
    cos, sin = (f(np.array([b.turn for b in bends])) for f in (np.cos, np.sin))
    turn = np.stack([cos, -sin, sin, cos], axis=-1).reshape(-1, 2, 2)
    places = (moved - 0.5) @ turn + 0.5
    return places.reshape(-1, h, w, 2), black.reshape(-1, h, w)


def _homographies(jitter: NDArray[np.float64]) -> NDArray[np.float64]:
    """The projective maps that take the unit square's corners to themselves plus (n, 4, 2)."""
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
    """Places of the images to copy, going round each class until it is full."""
    found = [
        np.resize(places, max(0, count - len(places)))
        for label in np.unique(labels)
        for places in [np.flatnonzero(labels == label)]
    ]
    return np.concatenate(found)


def _occurrences(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each place was seen before."""
    seen: dict[int, int] = {}
    counts = []
    for place in places.tolist():
        counts.append(seen.get(place, 0))
        seen[place] = counts[-1] + 1
    return np.array(counts, np.int64)
