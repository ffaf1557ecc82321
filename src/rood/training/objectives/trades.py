"""Adversarial training that trades accuracy for robustness."""

from dataclasses import dataclass

import torch
from torch import Generator
from torch.nn.functional import cross_entropy

from rood.errors import expect
from rood.models.model import Model
from rood.shapes import Logits, Scores
from rood.training.objectives.base import Batch, Loss
from rood.training.objectives.robust import Robust


@dataclass(frozen=True, kw_only=True)
class TRADES(Robust):
    r"""L = E[-log p_y(x)] + beta E max_{x' in B(x)} KL(p(x) || p(x')).

    B is the L-infinity ball of radius eps. Zhang et al., *Theoretically Principled Trade-off
    between Robustness and Accuracy*, ICML 2019, arXiv:1901.08573. Clean and attacked images go
    through the network in one forward pass and share its batch statistics; the official code makes
    two. The attack starts uniformly in the ball; that code starts close to x.
    """

    beta: float = 6.0

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(self.beta >= 0, "beta >= 0", self.beta)

    @property
    def searching_passes(self) -> int:
        return 1 + super().searching_passes

    def compute(self, model: Model, batch: Batch, generator: Generator) -> Loss:
        with self.searching(model):
            clean = model(batch.x).logits
        worst = self.worst(model, lambda z: divergence(clean, z), batch.x, generator)
        z, z_worst = model(torch.cat([batch.x, worst])).logits.chunk(2)
        return cross_entropy(z.float(), batch.y) + self.beta * divergence(z, z_worst).mean()


def divergence(z: Logits, other: Logits) -> Scores:
    """KL(p || q) of the softmax p of z from the softmax q of `other`."""
    log_p, log_q = z.float().log_softmax(dim=1), other.float().log_softmax(dim=1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=1)
