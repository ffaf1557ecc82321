"""Adversarial training."""

from dataclasses import dataclass

from torch import Generator

from rood.models.model import Model
from rood.training.objectives.base import Batch, Loss
from rood.training.objectives.robust import Robust, exposed


@dataclass(frozen=True, kw_only=True)
class ADV(Robust):
    r"""L = E max_{x' in B(x)} -log p_y(x'), B the L-infinity ball of radius eps.

    Madry et al., *Towards Deep Learning Models Resistant to Adversarial Attacks*, ICLR 2018,
    arXiv:1706.06083; the row ADV of Chen et al., arXiv:2003.09711.
    """

    def compute(self, model: Model, batch: Batch, generator: Generator) -> Loss:
        losses = lambda z: exposed(z, batch.y)
        worst = self.worst(model, losses, batch.x, generator)
        return losses(model(worst).logits).mean()
