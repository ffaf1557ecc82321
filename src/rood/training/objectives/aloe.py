"""Outlier exposure where both the images and the outliers are attacked."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Generator

from rood.models.model import Model
from rood.numerics.softmax import uniform_cross_entropy
from rood.training.objectives.base import Batch, Loss
from rood.training.objectives.robust import (
    Robust,
    check_mining,
    check_weight,
    exposed,
    hardest,
    weighed,
)


@dataclass(frozen=True, kw_only=True)
class ALOE(Robust):
    r"""L = E max_{x' in B(x)} -log p_y(x') + weight E max_{o' in B(o)} (lse(z(o')) - mean z(o')).

    B is the L-infinity ball of radius eps. Chen et al., *Robust Out-of-distribution Detection for
    Neural Networks*, AAAI 2022 workshop, arXiv:2003.09711. The official code also sends the clean
    batch through the network at each step, to log its loss, which moves the batch-norm statistics.

    With keep < 1 it trains on the hardest outliers only, as ATOM does: set `outlier_batch` 1 / keep
    times as large.
    """

    needs_outliers: ClassVar[bool] = True

    weight: float = 0.5
    keep: float = 1.0  # share of each step's outliers that is trained on
    skip: float = 0.0  # share of still harder outliers, which may be ID

    def __post_init__(self) -> None:
        super().__post_init__()
        check_weight(self.weight)
        check_mining(self.keep, self.skip)

    @property
    def searching_passes(self) -> int:
        return 2 * super().searching_passes if self.bn == "train" else super().searching_passes

    def compute(self, model: Model, batch: Batch, generator: Generator) -> Loss:
        assert batch.outliers is not None
        x, o = batch.x, batch.outliers
        if self.keep < 1:
            o = hardest(model, o, uniform_cross_entropy, keep=self.keep, skip=self.skip)
        if self.bn == "eval":  # one attack on both: no batch statistics
            parts = [(torch.cat([x, o]), batch.y)]
        else:  # separate batch statistics
            parts = [(x, batch.y), (o, batch.y[:0])]
        worst = [self.worst(model, partial(exposed, y=y), part, generator) for part, y in parts]
        z = model(torch.cat(worst)).logits
        return weighed(exposed(z, batch.y), len(x), self.weight)
