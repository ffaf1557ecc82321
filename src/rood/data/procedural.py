"""Computed images: OOD sets that need no file."""

import hashlib
from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from rood.data.base import ImageSet, LoadOptions, Shape, Source, check_shape
from rood.errors import InputError
from rood.registry import unknown

_Pixels: TypeAlias = NDArray[np.float64]  # (n, c, h, w) in [0, 1]
_CHUNK = 64  # images per random stream


class Procedural(Source):
    """KIND[,n=1000][,seed=0]: computed images, which need no file.

    KIND: noise, gaussian, colour_noise, constant, blobs, stripes, checkerboard, spiral, fractals,
    dead_leaves, strokes, signs. Kind, seed and shape determine the images; a smaller n gives the
    first.
    """

    def read(self, argument: str, options: LoadOptions) -> ImageSet:
        kind, n, seed = _parse(argument)
        n = n if options.limit is None else min(n, options.limit)
        images = draw(kind, n, seed, options.shape or (3, 32, 32))
        return ImageSet(name=kind, images=torch.from_numpy(images))


def draw(kind: str, n: int, seed: int, shape: Shape) -> NDArray[np.uint8]:
    """The first n images of a kind, (n, c, h, w)."""
    check_shape(shape)
    if kind not in KINDS:
        raise unknown("kind of procedural image", kind, KINDS)
    if n < 1 or seed < 0:
        raise InputError(f"expected n of at least 1 and a seed of at least 0, got {n} and {seed}")
    purpose = int.from_bytes(hashlib.sha256(kind.encode()).digest()[:4], "big")
    images = np.empty((n, *shape), np.uint8)
    for i, start in enumerate(range(0, n, _CHUNK)):
        rng = np.random.default_rng([seed, purpose, i])
        part = images[start : start + _CHUNK]
        part[:] = np.rint(KINDS[kind](rng, (_CHUNK, *shape))[: len(part)] * 255)
    return images


def _parse(argument: str) -> tuple[str, int, int]:
    kind, *rest = argument.split(",")
    options = {"n": 1000, "seed": 0}
    for option in rest:
        name, _, value = option.partition("=")
        if name.strip() not in options or not value.strip().isdecimal():
            raise InputError(f"expected KIND[,n=1000][,seed=0], got {argument!r}")
        options[name.strip()] = int(value)
    return kind.strip(), options["n"], options["seed"]


_Size: TypeAlias = tuple[int, int, int, int]


def _noise(rng: Generator, size: _Size) -> _Pixels:
    return rng.random(size)


def _gaussian(rng: Generator, size: _Size) -> _Pixels:
    """Mean 1/2 and standard deviation 1, clipped."""
    return np.clip(rng.normal(0.5, 1.0, size), 0, 1)


def _constant(rng: Generator, size: _Size) -> _Pixels:
    return np.broadcast_to(rng.random((*size[:2], 1, 1)), size).copy()


def _colour_noise(rng: Generator, size: _Size) -> _Pixels:
    """Noise whose amplitude falls as frequency^-a: white at a = 0, like photographs at a = 1."""
    n, c, h, w = size
    frequency = np.hypot(np.fft.fftfreq(h)[:, None], np.fft.rfftfreq(w))
    frequency[0, 0] = 1  # the mean, which is removed below
    slope = rng.uniform(0.3, 2, (n, c, 1, 1))
    waves = np.fft.rfft2(rng.normal(size=size)) * frequency**-slope
    waves[:, :, 0, 0] = 0
    x = np.fft.irfft2(waves, s=(h, w))
    spread = np.maximum(x.std(axis=(2, 3), keepdims=True), 1e-12)
    middle, contrast = rng.uniform(0.3, 0.7, (n, c, 1, 1)), rng.uniform(0.1, 0.3, (n, c, 1, 1))
    return np.clip(middle + contrast * x / spread, 0, 1)


def _blobs(rng: Generator, size: _Size) -> _Pixels:
    """Noise blurred by 1/32 to 1/8 of the height, each channel stretched to the full range."""
    x = rng.random(size)
    widths = rng.uniform(1 / 32, 1 / 8, size[0]) * size[2]
    for image, width in zip(x, widths, strict=True):
        gaussian_filter(image, (0, width, width), output=image, mode="wrap")
    low, high = x.min(axis=(2, 3), keepdims=True), x.max(axis=(2, 3), keepdims=True)
    return (x - low) / np.maximum(high - low, 1e-12)


def _checkerboard(rng: Generator, size: _Size) -> _Pixels:
    n, _, h, w = size
    side = rng.integers(2, max(3, min(h, w) // 3), (n, 1, 1))
    rows = (np.arange(h)[:, None] + rng.integers(0, 64, (n, 1, 1))) // side
    columns = (np.arange(w) + rng.integers(0, 64, (n, 1, 1))) // side
    return _two_colours(rng, size, ((rows + columns) % 2).astype(np.float64))


def _stripes(rng: Generator, size: _Size) -> _Pixels:
    """Waves at a random angle, half of the images with soft edges and half with sharp ones."""
    n, _, h, w = size
    angle, phase = rng.uniform(0, 2 * np.pi, (2, n, 1, 1))
    waves = rng.uniform(1.5, max(2, min(h, w) / 4), (n, 1, 1))  # over the image
    y, x = _grid(h, w)
    wave = np.sin(2 * np.pi * waves * (x * np.cos(angle) + y * np.sin(angle)) + phase)
    sharp = rng.random((n, 1, 1)) < 0.5
    return _two_colours(rng, size, np.where(sharp, wave > 0, (wave + 1) / 2))


def _spiral(rng: Generator, size: _Size) -> _Pixels:
    """A spiral whose hue depends on angle and radius."""
    n, c, h, w = size
    y, x = _grid(h, w)
    dy, dx = (axis - rng.uniform(0.35, 0.65, (n, 1, 1)) for axis in (y, x))
    turns = rng.uniform(1.5, 4, (n, 1, 1)) * rng.choice([-1, 1], (n, 1, 1))
    turn = np.arctan2(dy, dx) + 2 * np.pi * turns * np.hypot(dx, dy)
    turn = turn + rng.uniform(0, 2 * np.pi, (n, 1, 1))
    thirds = 2 * np.pi * np.arange(c)[:, None, None] / 3
    return (1 + np.cos(turn[:, None] - thirds)) / 2


def _dead_leaves(rng: Generator, size: _Size) -> _Pixels:
    """Overlapping discs, small ones more often, with the statistics of natural scenes."""
    n, c, h, w = size
    x = np.broadcast_to(rng.random((n, c, 1, 1)), size).copy()
    gy, gx = _grid(h, w)
    for _ in range(60):
        cy, cx = rng.random((2, n, 1, 1))
        radius = 0.06 / np.sqrt(rng.uniform(0.03, 1, (n, 1, 1)))  # density as radius^-3
        inside = (gy - cy) ** 2 + (gx - cx) ** 2 < radius**2
        x = np.where(inside[:, None], rng.random((n, c, 1, 1)), x)
    return x


def _fractals(rng: Generator, size: _Size) -> _Pixels:
    """Julia sets: the escape time of z -> z^2 + c as a colour."""
    n, channels, h, w = size
    # just outside the main cardioid of the Mandelbrot set, where the detail is richest
    turn = np.exp(1j * rng.uniform(0, 2 * np.pi, (n, 1, 1)))
    c = (turn / 2 - turn**2 / 4) * rng.uniform(1, 1.1, (n, 1, 1))
    y, x = _grid(h, w)
    zoom = rng.uniform(1, 2.6, (n, 1, 1)) * np.exp(1j * rng.uniform(0, 2 * np.pi, (n, 1, 1)))
    z = (x - 0.5 + 1j * (y - 0.5)) * zoom + rng.uniform(-0.3, 0.3, (n, 1, 1))
    steps = np.zeros((n, h, w))
    for _ in range(48):
        inside = np.abs(z) < 4
        z = np.where(inside, z * z + c, z)
        steps += inside
    # fractional escape time; none for points that never escape
    left = np.abs(z) >= 4
    steps -= np.where(left, np.log2(np.log(np.where(left, np.abs(z), 4)) / np.log(4)), 0)
    phase = rng.uniform(0, 2 * np.pi, (n, channels, 1, 1))
    speed = rng.uniform(0.1, 0.5, (n, channels, 1, 1))
    return (1 + np.cos(speed * steps[:, None] + phase)) / 2


def _strokes(rng: Generator, size: _Size) -> _Pixels:
    """Three bent lines on black, about as thick as handwriting."""
    n, c, h, w = size
    distance = _bent_lines(rng, size, 3)
    half = rng.uniform(0.02, 0.05, (n, 1, 1))
    ink = np.clip((half - distance) * min(h, w) + 0.5, 0, 1)  # edges one pixel wide
    return ink[:, None] * rng.uniform(0.7, 1, (n, c, 1, 1))


def _signs(rng: Generator, size: _Size) -> _Pixels:
    """One or two thick bent lines in a colour on a shaded ground, more or less blurred."""
    n, _, h, w = size
    distance = np.where(
        rng.random((n, 1, 1)) < 0.5, _bent_lines(rng, size, 1), _bent_lines(rng, size, 2)
    )
    half = rng.uniform(0.04, 0.1, (n, 1, 1))
    ink = np.clip((half - distance) * min(h, w) + 0.5, 0, 1)
    x = _two_colours(rng, size, ink)
    y, z = _grid(h, w)
    slope = rng.uniform(-0.3, 0.3, (2, n, 1, 1))
    x = x + (slope[0] * (y - 0.5) + slope[1] * (z - 0.5))[:, None]
    for image, width in zip(x, rng.uniform(0, 1 / 24, n) * h, strict=True):
        gaussian_filter(image, (0, width, width), output=image, mode="nearest")
    low, high = np.sort(rng.uniform(0, 1, (2, n, 1, 1, 1)), axis=0)  # contrast
    high = np.maximum(high, low + 0.25)
    return np.clip(low + (high - low) * x, 0, 1)


def _bent_lines(rng: Generator, size: _Size, lines: int) -> NDArray[np.float64]:
    """The distance of every pixel to the nearest of some lines of three pieces."""
    n, _, h, w = size
    gy, gx = _grid(h, w)
    distance = np.full((n, h, w), np.inf)
    for _ in range(lines):
        corners = rng.uniform(0.1, 0.9, (4, 2, n, 1, 1))
        for (ay, ax), (by, bx) in pairwise(corners):
            vy, vx = by - ay, bx - ax
            along = ((gy - ay) * vy + (gx - ax) * vx) / np.maximum(vy**2 + vx**2, 1e-12)
            along = np.clip(along, 0, 1)
            gap = np.hypot(gy - ay - along * vy, gx - ax - along * vx)
            distance = np.minimum(distance, gap)
    return distance


def _grid(h: int, w: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Pixel centres of an image of height and width 1."""
    y, x = np.mgrid[0:h, 0:w]
    return (y + 0.5) / h, (x + 0.5) / w


def _two_colours(rng: Generator, size: _Size, share: NDArray[np.float64]) -> _Pixels:
    """Mix two colours that differ in every channel, so that every pattern is visible."""
    dark, bright = rng.uniform(0, 0.4, size[:2]), rng.uniform(0.6, 1, size[:2])
    swap = rng.random(size[:2]) < 0.5
    first, second = np.where(swap, bright, dark), np.where(swap, dark, bright)
    mixed = share[:, None]  # (n, 1, h, w)
    return first[..., None, None] * (1 - mixed) + second[..., None, None] * mixed


KINDS: dict[str, Callable[[Generator, _Size], _Pixels]] = {
    "noise": _noise,
    "gaussian": _gaussian,
    "colour_noise": _colour_noise,
    "blobs": _blobs,
    "checkerboard": _checkerboard,
    "spiral": _spiral,
    "stripes": _stripes,
    "dead_leaves": _dead_leaves,
    "fractals": _fractals,
    "constant": _constant,
    "strokes": _strokes,
    "signs": _signs,
}
