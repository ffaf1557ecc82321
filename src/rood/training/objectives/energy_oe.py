"""Outlier exposure that bounds energies."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator
from torch.nn.functional import cross_entropy, relu

from rood.errors import expect
from rood.models.model import Model
from rood.training.objectives.base import Batch, Loss, Objective
from rood.training.objectives.robust import check_weight


@dataclass(frozen=True, kw_only=True)
class EnergyOE(Objective):
    r"""L = E[-log p_y(x)] + weight (E max(0, E(x) - m_in)^2 + E max(0, m_out - E(o))^2).

    E = -lse(z) is the energy, which the detector `energy` gives as its score: images are pushed
    below m_in, outliers o above m_out. Liu et al., *Energy-based Out-of-distribution Detection*,
    NeurIPS 2020, arXiv:2010.03759, which fine-tunes a trained network with it; CIFAR-100: m_in -27.
    """

    needs_outliers: ClassVar[bool] = True

    weight: float = 0.1
    m_in: float = -23.0
    m_out: float = -5.0

    def __post_init__(self) -> None:
        check_weight(self.weight)
        ordered = self.m_in <= self.m_out
        expect(ordered, "m_in <= m_out, as ID energies are lower", self.m_in, self.m_out)

    @classmethod
    def example(cls) -> "EnergyOE":
        """For the checks: bounds that matter to a network with small logits."""
        return cls(m_in=-5.0, m_out=0.0)

    def compute(self, model: Model, batch: Batch, generator: Generator) -> Loss:
        assert batch.outliers is not None
        z, n = model(torch.cat([batch.x, batch.outliers])).logits.float(), len(batch.x)
        energy = -z.logsumexp(dim=1)
        too_high, too_low = relu(energy[:n] - self.m_in), relu(self.m_out - energy[n:])
        bound = too_high.square().mean() + too_low.square().mean()
        return cross_entropy(z[:n], batch.y) + self.weight * bound
