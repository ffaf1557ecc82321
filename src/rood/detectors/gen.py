"""Generalised entropy of the largest softmax probabilities."""

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rood.detectors.base import OutputDetector, ScoreFunction
from rood.detectors.msp import MSP
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.softmax import margin
from rood.shapes import Scores


class GEN(OutputDetector):
    r"""s(x) = (1/gamma) log mean_{j <= M} (p_j (1 - p_j))^gamma over the M largest probabilities p.

    Liu et al., *GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection*, CVPR 2023,
    thecvf:CVPR2023. An increasing function of the paper's sum, in units of a logit, from log p and
    log(1 - p): the sum's gradient is infinite where p rounds to 1. Sign: negated.
    """

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

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        return (MSP(self.model).score_images,)


def _log_one_minus(z: Tensor, log_p: Tensor) -> Tensor:
    """log(1 - p) for sorted logits; for the largest, 1 - p = 1 / (1 + e^-m) with m the margin."""
    top = -softplus(-margin(z))
    others = (-log_p[:, 1:].exp()).log1p()
    return torch.cat([top[:, None], others], dim=1)
