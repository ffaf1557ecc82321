"""Perturbation-rectified detection: the highest score over a few small steps."""

import torch
from jaxtyping import Float
from torch import Tensor

from rood.detectors._gradient import at, score_and_gradient
from rood.detectors.base import Detector, ScoreFunction
from rood.detectors.entropy import Entropy
from rood.detectors.gen import GEN
from rood.detectors.msp import MSP
from rood.errors import InputError
from rood.models.model import Model
from rood.registry import named
from rood.shapes import Images, Scores


class PRO(Detector):
    r"""s(x) = max_{t <= K} s0(x_t), x_{t+1} = x_t + eps sign(grad s0(x_t)), for any score s0.

    Chen et al., *Leveraging Perturbation Robustness to Enhance Out-of-Distribution Detection*,
    CVPR 2025, arXiv:2503.18784: the minimum of a confidence, negated. Steps are in pixel units,
    neither projected nor clipped, so that K eps is the radius. The gradient is that of s0 at the
    highest step, straight-through: exact almost everywhere. The defaults of the named forms are
    those of the authors' code for CIFAR-10, converted to pixel units (times 0.25).
    """

    gradient = "almost_everywhere"

    def __init__(self, base: Detector, *, eps: float = 1e-3, steps: int = 3) -> None:
        super().__init__(base.model)
        if not (eps >= 0 and steps >= 0):
            raise InputError(f"expected eps >= 0 and steps >= 0, got eps = {eps}, steps = {steps}")
        self.base = base
        self.eps = eps
        self.steps = steps

    @classmethod
    @named("pro_msp")
    def msp(cls, model: Model, *, eps: float = 7.5e-5, steps: int = 3) -> "PRO":
        """PRO-MSP."""
        return cls(MSP(model), eps=eps, steps=steps)

    @classmethod
    @named("pro_entropy")
    def entropy(cls, model: Model, *, eps: float = 2.5e-4, steps: int = 1) -> "PRO":
        """PRO-ENT."""
        return cls(Entropy(model), eps=eps, steps=steps)

    @classmethod
    @named("pro_msp_t")
    def msp_t(
        cls, model: Model, *, temperature: float = 100.0, eps: float = 2.5e-4, steps: int = 3
    ) -> "PRO":
        """PRO-MSP-T."""
        return cls(MSP(model, temperature=temperature), eps=eps, steps=steps)

    @classmethod
    @named("pro_gen")
    def gen(
        cls,
        model: Model,
        *,
        gamma: float = 0.01,
        top: int = 100,
        eps: float = 2.5e-4,
        steps: int = 3,
    ) -> "PRO":
        """PRO-GEN."""
        return cls(GEN(model, gamma=gamma, top=top), eps=eps, steps=steps)

    def score_images(self, x: Images) -> Scores:
        points, scores = self.climb(x)
        if not (torch.is_grad_enabled() and x.requires_grad):
            return scores.amax(dim=0)
        highest = points[scores.argmax(dim=0), torch.arange(len(x), device=x.device)]
        return self.base.score_images(at(highest, x))

    def cost(self) -> tuple[int, int]:
        forwards, backwards = self.base.cost()
        return (self.steps + 1) * forwards, (self.steps + 1) * backwards + self.steps

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        """The mean over the steps, and the base score alone."""

        def mean(x: Images) -> Scores:
            points, _ = self.climb(x)
            return torch.stack([self.base.score_images(at(p, x)) for p in points]).mean(dim=0)

        return mean, self.base.score_images

    def climb(self, x: Images) -> tuple[Float[Tensor, "t b c h w"], Float[Tensor, "t b"]]:
        """Every x_t and its score, t = 0 to K, as constants."""
        points, scores = [x.detach()], []
        for _ in range(self.steps):
            score, gradient = score_and_gradient(self.base.score_images, points[-1])
            scores.append(score)
            points.append(points[-1] + self.eps * gradient.sign())
        with torch.no_grad():
            scores.append(self.base.score_images(points[-1]))
        return torch.stack(points), torch.stack(scores)
