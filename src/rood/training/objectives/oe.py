"""Outlier exposure."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator

from rood.models.model import Model
from rood.training.objectives.base import Batch, Loss, Objective
from rood.training.objectives.robust import check_weight, exposed, weighed


@dataclass(frozen=True, kw_only=True)
class OE(Objective):
    r"""L = E[-log p_y(x)] + weight E[lse(z(o)) - mean z(o)].

    Images and outliers o go through the network in one forward pass and share its batch statistics.
    Hendrycks et al., *Deep Anomaly Detection with Outlier Exposure*, ICLR 2019, arXiv:1812.04606.
    """

    needs_outliers: ClassVar[bool] = True

    weight: float = 0.5

    def __post_init__(self) -> None:
        check_weight(self.weight)

    def compute(self, model: Model, batch: Batch, generator: Generator) -> Loss:
        assert batch.outliers is not None
        z = model(torch.cat([batch.x, batch.outliers])).logits
        return weighed(exposed(z, batch.y), len(batch.x), self.weight)
