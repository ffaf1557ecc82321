"""Maximum likelihood of a flow."""

from dataclasses import dataclass

from torch import Generator
from torch.nn.functional import cross_entropy

from rood.models.generative.glow import GlowNetwork
from rood.models.model import Model
from rood.training.objectives.base import Batch, Loss, Objective


@dataclass(frozen=True, kw_only=True)
class Likelihood(Objective):
    r"""L = E[NLL(x + u)] + E[-log p_y], NLL in bits per dimension, u uniform in a pixel's bin.

    Kingma and Dhariwal, *Glow: Generative Flow with Invertible 1x1 Convolutions*, NeurIPS 2018,
    arXiv:1807.03039. p is the softmax of the linear probe, whose gradient stops at its input: the
    flow does not learn the classes.
    """

    @staticmethod
    def example_model(model: Model) -> Model:
        """A small network to train, for the contract checks."""
        return GlowNetwork.beside(model, levels=2, steps=2, width=8)

    def compute(self, model: Model, batch: Batch, generator: Generator) -> Loss:
        flow = GlowNetwork.of(model)
        seen = flow.look(batch.x, generator)
        logits = flow.head(flow.probed(seen.z).detach()).float()
        return seen.nll.mean() + cross_entropy(logits, batch.y)
