"""Likelihood of a flow, corrected by the complexity of the image."""

import zlib

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray

from rood.detectors.base import Detector, ScoreFunction
from rood.detectors.glow import Glow
from rood.errors import InputError
from rood.models.generative.glow import GlowNetwork
from rood.models.model import Model
from rood.shapes import Images, Scores

FRAME = 57  # bytes of signature, header and chunks around the data
LEVEL = 9


class Complexity(Detector):
    r"""s(x) = -log2 p(x) / n - 8 |PNG(x)| / n, p a flow's density, |PNG| the bytes of the file.

    Serra et al., *Input Complexity and Out-of-distribution Detection with Likelihood-based
    Generative Models*, ICLR 2020, arXiv:1909.11480. n counts pixels times channels, so that both
    terms are bits per number. The gradient treats the file's length as a constant; the image is
    rounded to 8 bits first.
    """

    gradient = "surrogate"

    def __init__(self, model: Model) -> None:
        GlowNetwork.on_plain_pixels(model)
        super().__init__(model)

    @classmethod
    def example(cls, model: Model) -> "Complexity":
        """With the small flow of `Glow.example`."""
        return cls(Glow.example(model).model)

    def score_images(self, x: Images) -> Scores:
        return GlowNetwork.of(self.model).look(x).nll - png_bits(x)

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        """The likelihood alone, and minus a differentiable estimate of the file's length."""
        nll = lambda x: GlowNetwork.of(self.model).look_between(x).nll
        return nll, lambda x: nll(x) - _roughness(x)


@torch.no_grad()
def png_bits(x: Images) -> Scores:
    """Bits of the PNG file for each pixel and channel."""
    if x.shape[1] > 4:
        raise InputError(f"expected 1 to 4 channels to write as PNG, got {x.shape[1]}")
    if len(x) == 0:
        return x.new_zeros(0)
    levels = (255 * x).round().clamp(0, 255)  # a wrapping detector may step out of the box
    found = png_bytes(levels.to(torch.uint8).cpu().numpy())
    return torch.from_numpy(8 * found / x[0].numel()).to(x)


def _roughness(x: Images) -> Scores:
    """Bits of the differences between neighbours, about as many as they take in a file."""
    across, down = x.diff(dim=3).abs(), x.diff(dim=2).abs()
    bits = lambda d: torch.log2(1 + 255 * d).flatten(1).mean(dim=1)
    return (bits(across) + bits(down)) / 2


def png_bytes(images: UInt8[np.ndarray, "n c h w"]) -> NDArray[np.int64]:
    """The length of each image's PNG file, every row with the filter of the smallest residuals.

    8 bits per channel, one data chunk, zlib at level 9; ties go to the first filter. The same on
    every machine.
    """
    filtered = _filtered(np.ascontiguousarray(images.transpose(0, 2, 3, 1)))
    return np.array([FRAME + len(zlib.compress(rows.tobytes(), LEVEL)) for rows in filtered])


def _filtered(pixels: UInt8[np.ndarray, "n h w c"]) -> UInt8[np.ndarray, "n h bytes"]:
    """The rows as PNG stores them: the number of the filter, then its residuals."""
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
