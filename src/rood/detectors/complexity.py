"""Likelihood of a flow, set off against how complex the image is."""

import torch

from rood.detectors._png import png_bytes
from rood.detectors.base import Detector, ScoreFunction
from rood.detectors.glow import Glow
from rood.errors import InputError
from rood.models.generative.glow import GlowNetwork
from rood.models.model import Model
from rood.shapes import Images, Scores


class Complexity(Detector):
    r"""s(x) = -log2 p(x) / n - 8 |PNG(x)| / n, p a flow's density, |PNG| the bytes of the file.

    Serra et al., *Input Complexity and Out-of-distribution Detection with Likelihood-based
    Generative Models*, ICLR 2020, arXiv:1909.11480. n counts pixels times channels, so that both
    are bits a number. To the gradient the file's length is a constant; everything is judged on the
    image of 8 bits.
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
        """The likelihood alone, and set off against differences that a file's length grows with."""
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
