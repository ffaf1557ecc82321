"""Energy after pruning all but the largest features."""

from typing import Literal

import torch
from torch import Tensor

from rood.detectors.base import OutputDetector, ScoreFunction
from rood.detectors.energy import Energy
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.registry import named
from rood.shapes import Features, Images, Scores

LARGEST_EXPONENT = 50.0  # of the scaling; e^88 overflows float32, and logits multiply it


class ASH(OutputDetector):
    r"""s(x) = -lse(W h(f) + b), h keeping the k largest features, k = d - round(d p / 100).

    `treatment` of what is kept: "p" leaves it, "b" sets it to sum(f) / k, "s" scales it by
    exp(sum(f) / sum of what is kept). Djurisic et al., *Extremely Simple Activation Shaping for
    Out-of-Distribution Detection*, ICLR 2023, arXiv:2209.09858. The gradient
    treats the set of kept features as a constant.
    """

    gradient = "almost_everywhere"

    def __init__(
        self, model: Model, *, treatment: Literal["b", "p", "s"] = "b", percentile: float = 90.0
    ) -> None:
        super().__init__(model)
        if treatment not in ("b", "p", "s"):
            raise InputError(f"expected treatment b, p or s, got {treatment!r}")
        if not 0 <= percentile < 100:
            raise InputError(f"expected a percentile in [0, 100), got {percentile}")
        self.treatment = treatment
        self.percentile = percentile

    @classmethod
    @named("ash_b")
    def b(cls, model: Model, *, percentile: float = 90.0) -> "ASH":
        """ASH-B, the ASH of OpenOOD."""
        return cls(model, treatment="b", percentile=percentile)

    @classmethod
    @named("ash_p")
    def p(cls, model: Model, *, percentile: float = 90.0) -> "ASH":
        """ASH-P."""
        return cls(model, treatment="p", percentile=percentile)

    @classmethod
    @named("ash_s")
    def s(cls, model: Model, *, percentile: float = 90.0) -> "ASH":
        """ASH-S."""
        return cls(model, treatment="s", percentile=percentile)

    def score_outputs(self, out: Outputs) -> Scores:
        return -self.model.head(self.shaped(out.features)).logsumexp(dim=1)

    def shaped(self, f: Features) -> Features:
        """h(f)."""
        kept = largest(f, self.percentile)
        if self.treatment == "b":
            return kept * f.sum(dim=1, keepdim=True) / kept.sum(dim=1, keepdim=True)
        pruned = f * kept
        return pruned * scaling(f, pruned) if self.treatment == "s" else pruned

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        """Pruning alone, whose gradient sees each feature, and the plain energy."""

        def pruned(x: Images) -> Scores:
            f = self.model(x).features
            return -self.model.head(f * largest(f, self.percentile)).logsumexp(dim=1)

        return pruned, Energy(self.model).score_images


@torch.no_grad()
def largest(f: Features, percentile: float) -> Features:
    """1 for the features that a percentile keeps, 0 for the rest; ties go to the lower index."""
    d = f.shape[1]
    k = max(1, d - round(d * percentile / 100))
    places = f.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return torch.zeros_like(f).scatter(1, places, 1.0)


def scaling(f: Features, pruned: Features) -> Tensor:
    """exp(sum before / sum after pruning), (b, 1), clamped below overflow."""
    after = pruned.sum(dim=1, keepdim=True)
    after = torch.where(after.abs() < 1e-6, torch.full_like(after, 1e-6), after)
    return (f.sum(dim=1, keepdim=True) / after).clamp(max=LARGEST_EXPONENT).exp()
