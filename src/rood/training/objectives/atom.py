"""Adversarial training with informative outlier mining."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator
from torch.nn.functional import softplus

from rood.models.model import Model
from rood.shapes import Logits, Scores
from rood.training.objectives.base import Batch, Loss
from rood.training.objectives.robust import Robust, check_mining, check_weight, hardest


@dataclass(frozen=True, kw_only=True)
class ATOM(Robust):
    r"""L = E[-log p_y(x)] + weight E_mined max_{o' in B(o)} -log p_out(o').

    p is the softmax of (z, 0), with an outlier class whose logit is 0, as general as one more
    output of the head. Then -lse(z), the score of the detector `energy`, ranks like p_out. Each
    step trains on the share `keep` of its outliers with the lowest p_out after the share `skip`:
    set `outlier_batch` 1 / keep times as large. Chen et al., *ATOM: Robustifying
    Out-of-distribution Detection Using Outlier Mining*, ECML 2021, arXiv:2006.15207, mines once an
    epoch; the official code attacks every other outlier, not all.
    """

    needs_outliers: ClassVar[bool] = True

    weight: float = 1.0
    keep: float = 0.25
    skip: float = 0.125  # the hardest may be ID

    def __post_init__(self) -> None:
        super().__post_init__()
        check_weight(self.weight)
        check_mining(self.keep, self.skip)

    def compute(self, model: Model, batch: Batch, generator: Generator) -> Loss:
        assert batch.outliers is not None
        mined = hardest(model, batch.outliers, taken_in, keep=self.keep, skip=self.skip)
        worst = self.worst(model, taken_in, mined, generator)
        z, n = model(torch.cat([batch.x, worst])).logits.float(), len(batch.x)
        own = z[:n].gather(1, batch.y[:, None]).squeeze(1)
        losses = taken_in(z)
        return (losses[:n] - own).mean() + self.weight * losses[n:].mean()


def taken_in(z: Logits) -> Scores:
    """-log p_out = log(1 + sum exp z)."""
    return softplus(z.float().logsumexp(dim=1))
