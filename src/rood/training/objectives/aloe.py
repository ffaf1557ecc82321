"""Outlier exposure where both the images and the outliers are attacked."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from rood.models.model import Model
from rood.training.objectives._inner import Robust, check_weight, exposed, weighed
from rood.training.objectives.base import Batch


@dataclass(frozen=True, kw_only=True)
class ALOE(Robust):
    r"""L = E max_{x' in B(x)} -log p_y(x') + weight E max_{o' in B(o)} (lse(z(o')) - mean z(o')).

    B is the L-infinity ball of radius eps. Chen et al., *Robust Out-of-distribution Detection for
    Neural Networks*, AAAI 2022 workshop, arXiv:2003.09711.
    """

    needs_outliers: ClassVar[bool] = True

    weight: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_weight(self.weight)

    def compute(self, model: Model, batch: Batch, generator: Generator) -> Float[Tensor, ""]:
        assert batch.outliers is not None
        losses = lambda z: exposed(z, batch.y)
        # one attack on both parts: images do not see each other in eval mode
        worst = self.worst(model, losses, torch.cat([batch.x, batch.outliers]), generator)
        return weighed(losses(model(worst).logits), len(batch.x), self.weight)
