"""The inner maximum of robust training, shared by the objectives that have one."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy

from rood.attacks.pgd import PGD
from rood.errors import InputError
from rood.models.model import Model
from rood.shapes import Images, Labels, Logits, Scores
from rood.softmax import uniform_cross_entropy
from rood.threat import Linf
from rood.training.objectives.base import Objective


@dataclass(frozen=True, kw_only=True)
class Robust(Objective):
    """An objective with an inner attack in the L-infinity ball of radius eps.

    Unlike the official code of ALOE, the attack runs in eval mode: batch-norm statistics are frozen
    while it searches, and the one outer forward pass is all that moves them.
    """

    eps: float = 1 / 255  # in pixel units
    steps: int | None = None  # of the inner attack; None means floor(255 eps + 1)
    step: float = 1 / 255  # in pixel units

    def __post_init__(self) -> None:
        Linf(self.eps)  # which says what is wrong with an eps
        attack = self.attack
        if attack.steps * self.step < self.eps:
            raise InputError(
                f"expected steps x step >= eps = {self.eps:g}, so that the inner attack can reach "
                f"the border, got {attack.steps} x {self.step:g}: take more or larger steps"
            )

    @property
    def attack(self) -> PGD:
        """The inner attack."""
        steps = math.floor(255 * self.eps + 1 + 1e-9) if self.steps is None else self.steps
        return PGD(steps=steps, step=self.step, keep="last", compare=False)

    def worst(
        self,
        model: Model,
        losses: Callable[[Logits], Scores],
        x: Float[Tensor, "_ c h w"],
        generator: Generator,
    ) -> Images:
        """The images in the ball around x whose losses the attack found largest."""
        with eval_mode(model):
            return self.attack(lambda x: losses(model(x).logits), x, Linf(self.eps), generator)


def exposed(z: Logits, y: Labels) -> Scores:
    """Cross-entropy of the first images, which have labels; of the rest that to the uniform."""
    z, n = z.float(), len(y)
    return torch.cat([cross_entropy(z[:n], y, reduction="none"), uniform_cross_entropy(z[n:])])


def weighed(losses: Scores, n: int, weight: float) -> Float[Tensor, ""]:
    """The mean loss of the n images and `weight` times that of the outliers."""
    return losses[:n].mean() + weight * losses[n:].mean()


def check_weight(weight: float) -> None:
    """Refuse a weight of the outliers that would reward them."""
    if weight < 0:
        raise InputError(f"expected a weight >= 0 of the outliers, got {weight}")


@contextmanager
def eval_mode(model: Model) -> Iterator[None]:
    """Freeze batch-norm statistics for the block; afterwards every layer is in the mode it was."""
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
