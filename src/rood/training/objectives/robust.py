"""The inner maximum of robust training, shared by the objectives that have one."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from rood.attacks.pgd import PGD
from rood.errors import expect
from rood.models.model import Model
from rood.numerics.softmax import uniform_cross_entropy
from rood.shapes import Images, Logits, Scores
from rood.threat import Linf
from rood.training.objectives.base import Loss, Objective


@dataclass(frozen=True, kw_only=True)
class Robust(Objective):
    """An objective with an inner attack in the L-infinity ball of radius eps.

    The attack runs in eval mode, so that only the outer forward pass updates batch norm. With
    `bn="train"` it uses and updates batch statistics at every step, as ALOE's official code does.
    """

    eps: float = 1 / 255  # in pixel units
    steps: int | None = None  # of the inner attack; None means floor(255 eps + 1)
    step: float = 1 / 255  # in pixel units
    bn: Literal["eval", "train"] = "eval"  # the mode of batch norm while the attack searches

    def __post_init__(self) -> None:
        Linf(self.eps)  # validates eps
        attack = self.attack
        what = f"steps x step >= eps = {self.eps:g}, so that the inner attack can reach the border"
        got, do = f"{attack.steps} x {self.step:g}", "take more or larger steps"
        expect(attack.steps * self.step >= self.eps, what, got, do=do)
        expect(self.bn in ("eval", "train"), "bn to be 'eval' or 'train'", repr(self.bn))

    @property
    def attack(self) -> PGD:
        """The inner attack."""
        steps = math.floor(255 * self.eps + 1 + 1e-9) if self.steps is None else self.steps
        return PGD(steps=steps, step=self.step, keep="last", compare=False)

    @property
    def batch_norm_updates(self) -> int:
        return 1 + (self.searching_passes if self.bn == "train" else 0)

    @property
    def searching_passes(self) -> int:
        """Forward passes of the inner attack in one loss."""
        return self.attack.steps

    def searching(self, model: Model) -> AbstractContextManager[None]:
        """Put the network into the mode of the inner attack."""
        return frozen(model, evaluate=self.bn == "eval")

    def worst(
        self,
        model: Model,
        losses: Callable[[Logits], Scores],
        x: Float[Tensor, "_ c h w"],
        generator: Generator,
    ) -> Images:
        """The images of largest loss that the attack found in the ball around x."""
        with self.searching(model):
            return self.attack(lambda x: losses(model(x).logits), x, Linf(self.eps), generator)


def exposed(z: Logits, y: Int[Tensor, " labelled"]) -> Scores:
    """Cross-entropy to the labels of the first images, to the uniform for the others."""
    z, n = z.float(), len(y)
    return torch.cat([cross_entropy(z[:n], y, reduction="none"), uniform_cross_entropy(z[n:])])


def hardest(
    model: Model,
    outliers: Images,
    losses: Callable[[Logits], Scores],
    *,
    keep: float,
    skip: float,
) -> Float[Tensor, "m c h w"]:
    """The share `keep` of the outliers with the largest losses, after the share `skip`."""
    with frozen(model), torch.no_grad():
        found = losses(model(outliers).logits.float())
    count = max(1, int(keep * len(outliers)))
    first = min(int(skip * len(outliers)), len(outliers) - count)
    return outliers[found.argsort(descending=True, stable=True)[first : first + count]]


def check_mining(keep: float, skip: float) -> None:
    """Refuse shares of the outliers outside (0, 1]."""
    holds = keep > 0 and skip >= 0 and keep + skip <= 1
    expect(holds, "shares keep > 0 and skip >= 0 with keep + skip <= 1", keep, skip)


def weighed(losses: Scores, n: int, weight: float) -> Loss:
    """Mean loss of the n images plus `weight` times that of the outliers."""
    return losses[:n].mean() + weight * losses[n:].mean()


def check_weight(weight: float) -> None:
    """Refuse a negative weight of the outliers."""
    expect(weight >= 0, "a weight >= 0 of the outliers", weight)


@contextmanager
def frozen(model: Model, *, evaluate: bool = True) -> Iterator[None]:
    """Freeze the weights inside the block and, with `evaluate`, switch to eval mode.

    Modes and gradients are restored afterwards.
    """
    learnt = [p for p in model.parameters() if p.requires_grad]
    for p in learnt:
        p.requires_grad_(False)
    try:
        with evaluating(model) if evaluate else nullcontext():
            yield
    finally:
        for p in learnt:
            p.requires_grad_()


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """Switch to eval mode inside the block."""
    learning = [m for m in model.modules() if m.training]
    _put(learning, False)
    try:
        yield
    finally:
        _put(learning, True)


def _put(modules: Iterable[nn.Module], training: bool) -> None:
    for module in modules:  # nn.Module.train() costs half a millisecond per step
        object.__setattr__(module, "training", training)
