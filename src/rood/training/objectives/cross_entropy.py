"""Ordinary training."""

from dataclasses import dataclass

from torch import Generator
from torch.nn.functional import cross_entropy

from rood.errors import expect
from rood.models.model import Model
from rood.training.objectives.base import Batch, Loss, Objective


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Objective):
    r"""L = E[-log p_y(x)], with p the softmax of the logits.

    The baseline of Hendrycks and Gimpel, *A Baseline for Detecting Misclassified and
    Out-of-Distribution Examples in Neural Networks*, ICLR 2017, arXiv:1610.02136.
    """

    smoothing: float = 0.0  # share of the label that goes evenly to all classes

    def __post_init__(self) -> None:
        expect(0 <= self.smoothing < 1, "0 <= smoothing < 1", self.smoothing)

    def compute(self, model: Model, batch: Batch, generator: Generator) -> Loss:
        z = model(batch.x).logits.float()
        return cross_entropy(z, batch.y, label_smoothing=self.smoothing)
