"""Outlier exposure where both the images and the outliers are attacked."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy

from rood.attacks.pgd import PGD
from rood.errors import InputError
from rood.models.model import Model
from rood.shapes import Images, Logits, Scores
from rood.softmax import uniform_cross_entropy
from rood.threat import Linf
from rood.training.objectives.base import Batch, Objective


@dataclass(frozen=True, kw_only=True)
class ALOE(Objective):
    r"""L = E max_{x' in B(x)} -log p_y(x') + weight E max_{o' in B(o)} (lse(z(o')) - mean z(o')).

    B is the L-infinity ball of radius eps. Chen et al., *Robust Out-of-distribution Detection for
    Neural Networks*, AAAI 2022 workshop, arXiv:2003.09711. Unlike the official code, the inner
    maxima are taken in eval mode with frozen batch-norm statistics, and one outer forward pass on
    [attacked images; attacked outliers] is all that moves those statistics.
    """

    needs_outliers: ClassVar[bool] = True

    eps: float = 1 / 255  # in pixel units
    weight: float = 0.5
    steps: int | None = None  # of the inner attack; None means floor(255 eps + 1)
    step: float = 1 / 255  # in pixel units

    def __post_init__(self) -> None:
        Linf(self.eps)  # which says what is wrong with an eps
        if self.weight < 0:
            raise InputError(f"expected a weight >= 0 of the outliers, got {self.weight}")
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

    def compute(self, model: Model, batch: Batch, generator: Generator) -> Float[Tensor, ""]:
        assert batch.outliers is not None
        n = len(batch.x)

        def losses(z: Logits) -> Scores:
            z = z.float()
            inside = cross_entropy(z[:n], batch.y, reduction="none")
            return torch.cat([inside, uniform_cross_entropy(z[n:])])

        # one attack on both parts: images do not see each other in eval mode
        clean: Images = torch.cat([batch.x, batch.outliers])
        with _eval_mode(model):
            goal = lambda x: losses(model(x).logits)
            worst = self.attack(goal, clean, Linf(self.eps), generator)
        loss = losses(model(worst).logits)
        return loss[:n].mean() + self.weight * loss[n:].mean()


@contextmanager
def _eval_mode(model: Model) -> Iterator[None]:
    """Freeze batch-norm statistics for the block; afterwards every layer is in the mode it was."""
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
