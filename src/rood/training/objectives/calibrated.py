"""A classifier trained to be uncertain on the images of a GAN."""

import math
from collections.abc import Callable, Sequence
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
from rood.training.objectives.base import Batch, Loss, Objective
from rood.training.objectives.robust import check_weight, frozen

BETAS = 0.5, 0.999  # of Adam, as GANs are trained
TINY = 1e-8


@dataclass(frozen=True, kw_only=True)
class Calibrated(Objective):
    r"""L = E[-log p_y(x)] + weight E[KL(U || p(x'))], x' from a GAN that lowers the same KL.

    Each step trains the discriminator D, then the generator G with -log D(G) + weight KL(U ||
    p(G)), where p is in eval mode, then p with new x'. Lee et al., *Training Confidence-Calibrated
    Classifiers for Detecting Out-of-Distribution Samples*, ICLR 2018, arXiv:1711.09325: weight 1
    for SVHN, 0.1 for CIFAR-10.
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

    def compute(self, model: Model, batch: Batch, generator: Generator) -> Loss:
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
    """Generator and discriminator with their optimizers."""

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
        """n generated images."""
        return self.painter(torch.randn(n, NOISE, generator=source, device=source.device)).float()

    def learn_to_tell(self, x: Images, source: Generator) -> None:
        """One step of the discriminator."""
        real = self.critic(x).float()
        fake = self.critic(self.painted(len(x), source).detach()).float()
        loss = softplus(-real).mean() + softplus(fake).mean()
        self.tells.step(list(self.critic.parameters()), loss)

    def learn_to_paint(self, n: int, source: Generator, cost: Callable[[Images], Loss]) -> None:
        """One step of the generator: fool the discriminator at low cost."""
        x = self.painted(n, source)
        loss = softplus(-self.critic(x).float()).mean() + cost(x)
        self.paints.step(list(self.painter.parameters()), loss)


class Adam(nn.Module):
    """Adam with its state in buffers, which the training loop saves.

    Kingma and Ba, *Adam: A Method for Stochastic Optimization*, arXiv:1412.6980.
    """

    count: Float[Tensor, ""]

    def __init__(self, parameters: Sequence[Tensor], lr: float) -> None:
        super().__init__()
        self.lr = lr
        self.register_buffer("count", torch.zeros(()))
        for i, p in enumerate(parameters):
            self.register_buffer(f"first_{i}", torch.zeros_like(p))
            self.register_buffer(f"second_{i}", torch.zeros_like(p))

    @torch.no_grad()
    def step(self, parameters: Sequence[Tensor], loss: Tensor) -> None:
        """One step down the loss."""
        with torch.enable_grad():
            slopes = torch.autograd.grad(loss, list(parameters))
        self.count += 1
        one, two = (1 - beta**self.count for beta in BETAS)
        for i, (p, slope) in enumerate(zip(parameters, slopes, strict=True)):
            first, second = self.get_buffer(f"first_{i}"), self.get_buffer(f"second_{i}")
            first.lerp_(slope, 1 - BETAS[0])
            second.lerp_(slope.square(), 1 - BETAS[1])
            p.sub_(self.lr * (first / one) / ((second / two).sqrt() + TINY))


def uncertainty(z: Logits) -> Scores:
    """KL(U || p), U the uniform distribution."""
    return uniform_cross_entropy(z.float()) - math.log(z.shape[1])
