"""How long an image is as a PNG file: a measure of complexity that is the same everywhere."""

import zlib

import numpy as np
from jaxtyping import UInt8
from numpy.typing import NDArray

FRAME = 57  # bytes of signature, header and end, and around the data
LEVEL = 9


def png_bytes(images: UInt8[np.ndarray, "n c h w"]) -> NDArray[np.int64]:
    """The length of each image's file, every row with the filter whose residuals are smallest.

    8 bits a channel, one block of data, zlib at level 9; ties go to the first filter.
    """
    filtered = _filtered(np.ascontiguousarray(images.transpose(0, 2, 3, 1)))
    return np.array([FRAME + len(zlib.compress(rows.tobytes(), LEVEL)) for rows in filtered])


def _filtered(pixels: UInt8[np.ndarray, "n h w c"]) -> UInt8[np.ndarray, "n h bytes"]:
    """The rows as PNG stores them: the number of a filter, then what the filter leaves."""
    n, h, w, c = pixels.shape
    x = pixels.astype(np.int16)
    left, up, corner = (np.zeros_like(x) for _ in range(3))
    left[:, :, 1:], up[:, 1:], corner[:, 1:, 1:] = x[:, :, :-1], x[:, :-1], x[:, :-1, :-1]
    expected = (np.zeros_like(x), left, up, (left + up) // 2, _paeth(left, up, corner))
    residuals = np.stack([(x - e).astype(np.uint8) for e in expected])  # (5, n, h, w, c)
    sizes = np.abs(residuals.view(np.int8).astype(np.int16)).sum(axis=(3, 4))  # (5, n, h)
    best = sizes.argmin(axis=0)  # (n, h)
    chosen = np.take_along_axis(residuals, best[None, :, :, None, None], axis=0)[0]
    return np.concatenate([best[:, :, None].astype(np.uint8), chosen.reshape(n, h, w * c)], axis=2)


def _paeth(
    left: NDArray[np.int16], up: NDArray[np.int16], corner: NDArray[np.int16]
) -> NDArray[np.int16]:
    """Whichever of the three is nearest to left + up - corner; in case of a tie, in that order."""
    to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
    other = np.where(to_up <= to_corner, up, corner)
    return np.where((to_left <= to_up) & (to_left <= to_corner), left, other)
