"""Squared error of an auto-encoder."""

from dataclasses import dataclass

from torch import Generator
from torch.nn.functional import cross_entropy

from rood.models.generative.autoencoder import AutoEncoderNetwork
from rood.models.model import Model
from rood.training.objectives.base import Batch, Loss, Objective


@dataclass(frozen=True, kw_only=True)
class Reconstruction(Objective):
    r"""L = E[|x - x'|^2] + E[-log p_y], x' the image made from the code of x.

    The squares are added up over pixels. p is the softmax of the linear probe, whose gradient stops
    at the code: the auto-encoder does not learn the classes. For the score that Liang et al., *An
    Algorithm for Out-Of-Distribution Attack to Neural Network Encoder*, arXiv:2009.08016, discuss.
    """

    @staticmethod
    def example_model(model: Model) -> Model:
        """A small network to train, for the contract checks."""
        return AutoEncoderNetwork.beside(model, size=16, width=8, numbers=16)

    def compute(self, model: Model, batch: Batch, generator: Generator) -> Loss:
        coder = AutoEncoderNetwork.of(model)
        code = coder.code(batch.x)
        logits = coder.head(code.detach()).float()
        made = coder.decode(code, (batch.x.shape[2], batch.x.shape[3]))
        error = (made.float() - batch.x).square().sum(dim=(1, 2, 3))
        return error.mean() + cross_entropy(logits, batch.y)
