"""A classifier that is unsure of what a generator paints at the border of its images."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from rood.errors import InputError
from rood.models.generative.dcgan import NOISE, Critic, Painter, initialise
from rood.models.model import Model
from rood.numerics.softmax import uniform_cross_entropy
from rood.seeds import beside
from rood.shapes import Images, Logits, Scores
from rood.training.objectives._adam import Adam
from rood.training.objectives.base import Batch, Objective
from rood.training.objectives.robust import check_weight, frozen


@dataclass(frozen=True, kw_only=True)
class Calibrated(Objective):
    r"""L = E[-log p_y(x)] + weight E[KL(U || p(x'))], x' painted by a GAN that lowers the same KL.

    Each step trains the critic D to tell the images from x', then the painter G to fool it and to
    paint what p is unsure of, -log D(G) + weight KL(U || p(G)), then p with fresh x'. Lee et al.,
    *Training Confidence-Calibrated Classifiers for Detecting Out-of-Distribution Samples*, ICLR
    2018, arXiv:1711.09325: weight 1 for SVHN, 0.1 for CIFAR-10. While G learns, p is in eval mode.
    """

    has_memory: ClassVar[bool] = True

    weight: float = 0.1
    width: int = 128  # channels of the GAN's finest map
    rate: float = 2e-4  # learning rate of the GAN

    def __post_init__(self) -> None:
        check_weight(self.weight)
        if not (self.rate > 0 and self.width >= 1):
            raise InputError(f"expected rate > 0 and width >= 1, got {self.rate} and {self.width}")

    @classmethod
    def example(cls) -> "Calibrated":
        """For the checks: a narrow GAN."""
        return cls(width=4)

    def begin(self, model: Model, some: Batch, generator: Generator) -> "Adversaries":
        c, h, w = some.x.shape[1:]
        return Adversaries((c, h, w), self.width, self.rate, generator).to(some.x.device)

    def compute(self, model: Model, batch: Batch, generator: Generator) -> Float[Tensor, ""]:
        gan = batch.memory
        assert isinstance(gan, Adversaries)
        source, n = beside(batch.x, generator), len(batch.x)
        gan.learn_to_tell(batch.x, source)
        with frozen(model):
            gan.learn_to_paint(
                n, source, lambda x: self.weight * uncertainty(model(x).logits).mean()
            )
        painted = gan.painted(n, source).detach()
        z = model(torch.cat([batch.x, painted])).logits.float()
        return cross_entropy(z[:n], batch.y) + self.weight * uncertainty(z[n:]).mean()


class Adversaries(nn.Module):
    """The painter and the critic, and where their optimizers stand."""

    def __init__(
        self, shape: tuple[int, int, int], width: int, rate: float, generator: Generator
    ) -> None:
        super().__init__()
        with torch.device("meta"):  # draws nothing from the global generator
            self.painter, self.critic = Painter(shape, width), Critic(shape, width)
        self.to_empty(device="cpu")
        for net in (self.painter, self.critic):
            initialise(net, generator)
        self.paints = Adam(list(self.painter.parameters()), rate)
        self.tells = Adam(list(self.critic.parameters()), rate)

    def painted(self, n: int, source: Generator) -> Images:
        """n images of fresh noise."""
        return self.painter(torch.randn(n, NOISE, generator=source, device=source.device)).float()

    def learn_to_tell(self, x: Images, source: Generator) -> None:
        """One step of the critic, for which the images are real and the painted are not."""
        real = self.critic(x).float()
        fake = self.critic(self.painted(len(x), source).detach()).float()
        loss = softplus(-real).mean() + softplus(fake).mean()
        self.tells.step(list(self.critic.parameters()), loss)

    def learn_to_paint(
        self, n: int, source: Generator, cost: Callable[[Images], Float[Tensor, ""]]
    ) -> None:
        """One step of the painter, to fool the critic at little cost."""
        x = self.painted(n, source)
        loss = softplus(-self.critic(x).float()).mean() + cost(x)
        self.paints.step(list(self.painter.parameters()), loss)


def uncertainty(z: Logits) -> Scores:
    """KL(U || p), U the uniform distribution: 0 where p is as unsure as can be."""
    return uniform_cross_entropy(z.float()) - math.log(z.shape[1])
