"""Relations to the training images: alike in features and in predicted classes."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from rood.detectors.base import OutputDetector, ScoreFunction
from rood.detectors.msp import MSP
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.streaming import Sample
from rood.shapes import Labels, Scores


class Relation(OutputDetector):
    r"""s(x) = -log (k/n) sum_i (max(0, u . u_i) p . p_i)^power, u = f / ||f||, p the softmax.

    i runs over a sample of n, at most `sample`, training images of k classes. Kim et al., *Neural
    Relation Graph: A Unified Framework for Identifying Label Noise and Outlier Data*, NeurIPS 2023,
    arXiv:2301.12321. The logarithm keeps the ranking and does not saturate. Relations below 0.03,
    which the authors' code sets to 0, count here, so that the score has no jumps. Sign: negated.
    """

    gradient = "almost_everywhere"

    bank_: Float[Tensor, "n d"]
    probabilities_: Float[Tensor, "n k"]

    def __init__(self, model: Model, *, power: float = 1.0, sample: int = 10_000) -> None:
        super().__init__(model)
        if not (power > 0 and sample >= 1):
            raise InputError(f"expected power > 0 and sample >= 1, got {power} and {sample}")
        self.power = power
        self.sample = sample

    def start(self) -> None:
        self._rows = Sample(self.sample)

    def see(self, out: Outputs, labels: Labels) -> None:
        rows = [normalize(out.features, dim=1), out.logits.softmax(dim=1)]
        self._rows.see(torch.cat(rows, dim=1), out.keys)

    def finish(self) -> None:
        rows = self._rows.rows()
        del self._rows
        self.bank_, self.probabilities_ = rows.split([rows.shape[1] - self._k, self._k], dim=1)

    @property
    def _k(self) -> int:
        return self.model.classes

    def score_outputs(self, out: Outputs) -> Scores:
        alike = (normalize(out.features.double(), dim=1) @ self.bank_.double().T).clamp_min(0)
        same_class = out.logits.double().softmax(dim=1) @ self.probabilities_.double().T
        tiny = torch.finfo(alike.dtype).tiny
        logs = alike.clamp_min(tiny).log() + same_class.clamp_min(tiny).log()  # (b, n)
        return math.log(len(self.bank_) / self._k) - (self.power * logs).logsumexp(dim=1)

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        return (MSP(self.model).score_images,)
