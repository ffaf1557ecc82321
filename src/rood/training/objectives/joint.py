"""Classes and a scalar ID/OOD head, each attacked through the very output that it trains."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator
from torch.nn.functional import cross_entropy, softplus

from rood.errors import expect
from rood.models.model import Model, Outputs
from rood.models.scored import head_of, scored
from rood.shapes import Scores
from rood.threat import Linf
from rood.training.objectives.base import Batch, Loss
from rood.training.objectives.robust import Robust, check_weight


@dataclass(frozen=True, kw_only=True)
class Joint(Robust):
    r"""L = E[-log p_y(x') + softplus(s(x'))] + weight E[softplus(-s(o'))], s the scalar head.

    In the L-infinity ball of radius eps, x' climbs s for a share of the images (`through_head`, a
    half) and -log p_y for the others; o' descends s. So the head meets the attack that the detector
    `head` will: the outliers of ALOE descend confidence, and its images never climb it. Needs a
    network with a scalar head (`scored` in its architecture). Ours; the formula of a half is that
    of ALOE, Chen et al., arXiv:2003.09711, and of ATD, Azizmalayeri et al., arXiv:2209.15246, put
    together.
    """

    needs_outliers: ClassVar[bool] = True

    weight: float = 1.0
    through_head: float = 0.5  # share of the images that climb s

    def __post_init__(self) -> None:
        super().__post_init__()
        check_weight(self.weight)
        expect(0 <= self.through_head <= 1, "0 <= through_head <= 1", self.through_head)

    @staticmethod
    def example_model(model: Model) -> Model:
        """The network with a scalar head, for the contract checks."""
        return scored(model)

    def compute(self, model: Model, batch: Batch, generator: Generator) -> Loss:
        assert batch.outliers is not None
        y, n = batch.y, len(batch.x)
        first = n - math.ceil(self.through_head * n)

        def climbed(out: Outputs) -> Scores:
            s = head_of(out).float()
            classes = cross_entropy(out.logits[:first].float(), y[:first], reduction="none")
            return torch.cat([classes, s[first:n], -s[n:]])

        both = torch.cat([batch.x, batch.outliers])
        with self.searching(model):
            worst = self.attack(lambda x: climbed(model(x)), both, Linf(self.eps), generator)
        out = model(worst)
        s = head_of(out).float()
        inside = cross_entropy(out.logits[:n].float(), y) + softplus(s[:n]).mean()
        return inside + self.weight * softplus(-s[n:]).mean()
