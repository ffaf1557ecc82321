"""Outlier exposure where the images are attacked and the outliers are not."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator

from rood.models.model import Model
from rood.training.objectives.base import Batch, Loss
from rood.training.objectives.robust import Robust, check_weight, exposed, weighed


@dataclass(frozen=True, kw_only=True)
class AOE(Robust):
    r"""L = E max_{x' in B(x)} -log p_y(x') + weight E (lse(z(o)) - mean z(o)).

    B is the L-infinity ball of radius eps. The ablation of Chen et al., *Robust Out-of-distribution
    Detection for Neural Networks*, AAAI 2022 workshop, arXiv:2003.09711; attacked outliers play no
    part here, where the official code lets them move the batch-norm statistics.
    """

    needs_outliers: ClassVar[bool] = True

    weight: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_weight(self.weight)

    def compute(self, model: Model, batch: Batch, generator: Generator) -> Loss:
        assert batch.outliers is not None
        losses = lambda z: exposed(z, batch.y)
        worst = self.worst(model, losses, batch.x, generator)
        z = model(torch.cat([worst, batch.outliers])).logits
        return weighed(losses(z), len(batch.x), self.weight)
