"""Scores of a joint energy model: a classifier whose logits define a density of images."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from rood.detectors.base import Detector, ScoreFunction
from rood.errors import InputError
from rood.models.model import Model
from rood.numerics.softmax import margin
from rood.registry import named
from rood.seeds import generator
from rood.shapes import Images, Scores

DIRECTIONS = 4  # random directions of the central differences
REACH = 0.05  # their step, in pixel units


class JEM(Detector):
    r"""s(x) = -f(x), with f = lse(z), up to a constant the log density of x; or one of two others.

    `kind`: "density" -f; "softmax" the margin of `MSP`; "gradient" log ||grad_x f||, the
    approximate mass, as typical images lie where the density is flat. For networks trained by the
    objective `jem`. Grathwohl et al., *Your Classifier is Secretly an Energy Based Model and You
    Should Treat it Like One*, ICLR 2020, arXiv:1912.03263; the official evaluation adds noise to
    every image, which is left out here.
    """

    gradient = "almost_everywhere"

    def __init__(
        self, model: Model, *, kind: Literal["density", "softmax", "gradient"] = "density"
    ) -> None:
        super().__init__(model)
        if kind not in ("density", "softmax", "gradient"):
            raise InputError(f"expected the kind density, softmax or gradient, got {kind!r}")
        self.kind = kind

    @classmethod
    @named("jem")
    def density(cls, model: Model) -> "JEM":
        """-log p(x), up to a constant."""
        return cls(model, kind="density")

    @classmethod
    @named("jem_softmax")
    def softmax(cls, model: Model) -> "JEM":
        """How unsure the classes are."""
        return cls(model, kind="softmax")

    @classmethod
    @named("jem_gradient")
    def mass(cls, model: Model) -> "JEM":
        """The slope of the log density."""
        return cls(model, kind="gradient")

    def score_images(self, x: Images) -> Scores:
        if self.kind == "softmax":
            return margin(self.model(x).logits)
        return self._slope(x) if self.kind == "gradient" else -self._log_density(x)

    def cost(self) -> tuple[int, int]:
        return (1, 1) if self.kind == "gradient" else (1, 0)

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        """For the gradient norm, which is piecewise constant: -f, and central differences.

        The differences reach `REACH` far and so have a gradient across the kinks of a ReLU.
        """
        if self.kind != "gradient":
            return ()

        def afar(x: Images) -> Scores:
            total = torch.zeros_like(x[:, 0, 0, 0])
            for v in self._directions(x):
                ahead, behind = (self._log_density(x + h * v) for h in (REACH, -REACH))
                total = total + ((ahead - behind) / (2 * REACH)).square()
            return total.clamp_min(1e-30).log() / 2

        return (lambda x: -self._log_density(x)), afar

    def _log_density(self, x: Images) -> Scores:
        return self.model(x).logits.logsumexp(dim=1)

    def _slope(self, x: Images) -> Scores:
        """log ||grad f||; differentiable (second order) where x requires a gradient."""
        followed = torch.is_grad_enabled() and x.requires_grad
        with torch.inference_mode(False), torch.enable_grad():
            probe = x if followed else x.detach().clone().requires_grad_()
            f = self._log_density(probe).sum()
            (g,) = torch.autograd.grad(f, probe, create_graph=followed)
            slope = g.flatten(1).square().sum(dim=1).clamp_min(1e-30).log() / 2
        return slope if followed else slope.detach()

    def _directions(self, x: Images) -> list[Float[Tensor, "c h w"]]:
        source = generator(0, "directions")
        drawn = [torch.randn(x.shape[1:], generator=source) for _ in range(DIRECTIONS)]
        return [(v / v.norm()).to(x) for v in drawn]
