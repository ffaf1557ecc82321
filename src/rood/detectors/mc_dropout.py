"""Softmax averaged over dropout masks of the features."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from rood.detectors.base import OutputDetector
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.softmax import margin
from rood.seeds import generator
from rood.shapes import Scores


class MCDropout(OutputDetector):
    r"""s(x) = m(log p), p = mean_i softmax(W (f * r_i) / (1 - rate) + b), m as in `MSP`.

    r_i are masks that drop features with probability `rate`. Gal & Ghahramani, *Dropout as a
    Bayesian Approximation*, ICML 2016, arXiv:1506.02142. The masks are drawn once, from `seed`: all
    images share them, so the score is deterministic and its gradient that of the expectation over
    these draws. Only the features before the head are dropped, as in OpenOOD, so that any network
    with a linear head will do.
    """

    gradient = "almost_everywhere"

    masks_: Float[Tensor, "n d"]

    def __init__(self, model: Model, *, draws: int = 32, rate: float = 0.5, seed: int = 0) -> None:
        super().__init__(model)
        if not (draws >= 1 and 0 < rate < 1):
            raise InputError(
                f"expected draws >= 1 and a rate between 0 and 1, got {draws} and {rate}"
            )
        self.draws = draws
        self.rate = rate
        self.seed = seed

    def finish(self) -> None:
        head = self.model.head
        drawn = torch.rand(
            self.draws, head.in_features, generator=generator(self.seed, "mc dropout")
        )
        self.masks_ = ((drawn >= self.rate).double() / (1 - self.rate)).to(head.weight)

    def score_outputs(self, out: Outputs) -> Scores:
        f = out.features[:, None] * self.masks_.to(out.features.dtype)  # (b, n, d)
        log_p = self.model.head(f).double().log_softmax(dim=2)  # (b, n, k)
        return margin(log_p.logsumexp(dim=1) - math.log(self.draws))
