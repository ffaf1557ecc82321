"""Generalised entropy of the largest softmax probabilities."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from rood.detectors._gaps import gap_rows, gaps
from rood.detectors.base import OutputBox, OutputDetector, ScoreFunction
from rood.detectors.msp import MSP
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.box import Box
from rood.numerics.softmax import margin, odds_within
from rood.shapes import Scores


class GEN(OutputDetector):
    r"""s(x) = (1/gamma) log mean_{j <= M} (p_j (1 - p_j))^gamma over the M largest probabilities p.

    Liu et al., *GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection*, CVPR 2023,
    thecvf:CVPR2023. An increasing function of the paper's sum, in units of a logit, from log p and
    log(1 - p): the sum's gradient is infinite where p rounds to 1. Sign: negated.
    """

    bounded = ("logits", "forms")

    def __init__(self, model: Model, *, gamma: float = 0.1, top: int = 100) -> None:
        super().__init__(model)
        if not (gamma > 0 and top >= 1):
            raise InputError(f"expected gamma > 0 and top >= 1, got {gamma} and {top}")
        self.gamma = gamma
        self.top = top

    def score_outputs(self, out: Outputs) -> Scores:
        z = out.logits.double().sort(dim=1, descending=True).values
        log_p = z.log_softmax(dim=1)
        terms = (log_p + _log_one_minus(z, log_p))[:, : self.top]
        log_mean = (self.gamma * terms).logsumexp(dim=1) - math.log(terms.shape[1])
        return log_mean / self.gamma

    def forms(self) -> Float[Tensor, "m d"] | None:
        return gap_rows(self.model.head)

    def bounds_from(self, out: OutputBox) -> Box:
        """With odds e^m, log p (1 - p) = -softplus(m) - softplus(-m), which falls with |m|."""
        odds = odds_within(gaps(out, self.model.head))
        far = odds.size
        near = torch.maximum(odds.low, -odds.high).clamp(min=0)
        terms = Box(*(-softplus(v) - softplus(-v) for v in (far, near)))
        m = min(self.top, terms.low.shape[1])
        # which classes are the m most probable is not known: the least and the largest terms
        some = Box(terms.low.topk(m, largest=False).values, terms.high.topk(m).values)
        means = ((self.gamma * v).logsumexp(dim=1) - math.log(m) for v in some)
        return Box(*(v / self.gamma for v in means))

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        return (MSP(self.model).score_images,)


def _log_one_minus(z: Tensor, log_p: Tensor) -> Tensor:
    """log(1 - p) for sorted logits; for the largest, 1 - p = 1 / (1 + e^-m) with m the margin."""
    top = -softplus(-margin(z))
    others = (-log_p[:, 1:].exp()).log1p()
    return torch.cat([top[:, None], others], dim=1)
