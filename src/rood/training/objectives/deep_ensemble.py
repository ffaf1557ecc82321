"""One member of a deep ensemble: images and adversarial examples of them."""

from dataclasses import dataclass, replace

import torch
from torch import Generator
from torch.nn.functional import cross_entropy

from rood.attacks.pgd import PGD
from rood.models.model import Model
from rood.training.objectives.base import Batch, Loss
from rood.training.objectives.robust import Robust, exposed


@dataclass(frozen=True, kw_only=True)
class DeepEnsemble(Robust):
    r"""L = E[-log p_y(x)] + E[-log p_y(x')], x' = x + eps sign(grad_x -log p_y(x)).

    Members of an ensemble differ only by their seed; the detector `deep_ensemble` combines them.
    Lakshminarayanan et al., *Simple and Scalable Predictive Uncertainty Estimation using Deep
    Ensembles*, NeurIPS 2017, arXiv:1612.01474, with eps 1 % of the range of the pixels. Both go
    through the network in one forward pass and share its batch statistics.
    """

    eps: float = 0.01
    steps: int | None = 1
    step: float = 0.01

    @property
    def attack(self) -> PGD:
        return replace(super().attack, random_start=False)

    def compute(self, model: Model, batch: Batch, generator: Generator) -> Loss:
        worst = self.worst(model, lambda z: exposed(z, batch.y), batch.x, generator)
        z = model(torch.cat([batch.x, worst])).logits.float()
        return 2 * cross_entropy(z, torch.cat([batch.y, batch.y]))
