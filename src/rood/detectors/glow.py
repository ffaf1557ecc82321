"""Negative log-likelihood of a flow."""

import torch

from rood.detectors.base import Detector, ScoreFunction
from rood.models.generative.glow import GlowNetwork
from rood.models.model import Model
from rood.seeds import generator
from rood.shapes import Images, Scores


class Glow(Detector):
    r"""s(x) = -log2 p(x) / n, the bits per dimension of a flow; n numbers per image.

    Kingma and Dhariwal, *Glow: Generative Flow with Invertible 1x1 Convolutions*, NeurIPS 2018,
    arXiv:1807.03039. The image is rounded to 8 bits, each pixel at the centre of its bin; the
    gradient of the rounding is straight-through. Simple images are likely, whatever they show:
    Nalisnick et al.,
    *Do Deep Generative Models Know What They Don't Know?*, ICLR 2019, arXiv:1810.09136. The model
    is one of `rood.models.generative.glow`.
    """

    gradient = "surrogate"

    def __init__(self, model: Model) -> None:
        GlowNetwork.on_plain_pixels(model)
        super().__init__(model)

    @classmethod
    def example(cls, model: Model) -> "Glow":
        """A small flow that knows dark noise alone, for the contract checks."""
        flow = GlowNetwork.beside(model, levels=2, steps=2, width=8)
        net, source = GlowNetwork.of(flow), generator(0, "dark noise")
        dark = 0.3 + 0.1 * torch.randn(64, net.channels, 16, 16, generator=source)
        net.settle(dark.clamp(0, 1).to(flow.mean), source)
        return cls(flow)

    def score_images(self, x: Images) -> Scores:
        return GlowNetwork.of(self.model).look(x).nll

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        """The likelihood of the image as it is, not rounded."""
        return (lambda x: GlowNetwork.of(self.model).look_between(x).nll,)
