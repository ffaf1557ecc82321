"""Detectors, attacks and metrics of one published row: what official code computes under a name.

To judge a detector use those of `rood`; these reproduce printed numbers.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from rood.attacks import PGD
from rood.attacks.base import AnyGoal, Best
from rood.detectors import Gram, LayeredMahalanobis
from rood.detectors.base import ScoreFunction
from rood.errors import InputError
from rood.metrics import curve
from rood.models.model import Model, Outputs
from rood.seeds import Noise
from rood.shapes import Images, Labels, Scores
from rood.threat import Linf, Threat

# the layers that OpenOOD's ResNet-18 lists, in rood's ResNet-18: the stem behind its ReLU (which
# the first block's shortcut passes on), three stages, and the fourth one pooled
STEM = "blocks.0.shortcut"
GRAM_LAYERS = (STEM, "blocks.1", "blocks.3", "blocks.5", "pool")


class OpenOODGram(Gram):
    r"""s(x) = -sum_l d_l(x), times 50 what OpenOOD v1.5 computes as Gram (arXiv:2306.09301).

    It takes one pair of bounds per label, layer and order from the single row sums of all channels,
    compares the sum of an image's row sums with them, and takes the deviation d_l for confidence.
    Neither E[d_l] nor max p enters, and no training image is held out.
    """

    needs_labels = True

    def __init__(
        self, model: Model, *, orders: int = 5, layers: tuple[str, ...] | None = GRAM_LAYERS
    ) -> None:
        super().__init__(model, orders=orders, layers=layers)

    def see(self, out: Outputs, labels: Labels) -> None:
        k = self.model.classes
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < k:
            raise InputError(
                f"expected labels 0 to {k - 1}, got {int(labels.min())} to {int(labels.max())}: "
                "OpenOOD's Gram learns class by class"
            )
        rows = self.row_sums(out.maps)
        low, high = (
            torch.cat([extreme(r, dim=1, keepdim=True) for r in rows], dim=1)
            for extreme in (torch.amin, torch.amax)
        )
        self.widen(low, high, labels.to(low.device))

    def finish(self) -> None:
        self.settle_bounds()
        self.weight_ = torch.ones_like(self.low_[0])

    def statistics(self, maps: tuple[Tensor, ...]) -> Float[Tensor, "b s"]:
        return torch.cat([r.sum(dim=1, keepdim=True) for r in self.row_sums(maps)], dim=1)

    def score_outputs(self, out: Outputs) -> Scores:
        return -self.deviation(out)

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        (soft,) = super().surrogates()
        return (lambda x: -soft(x),)


class OpenOODMDSEns(LayeredMahalanobis):
    r"""s(x) = -M(x + eta std sign(grad M(x))), M the confidence of the stem's spatial mean.

    What OpenOOD v1.5 (arXiv:2306.09301) computes as MDSEns: of all layers the stem alone, and a
    step of 0.0014 / 0.5 in units of the normalised input.
    """

    def __init__(
        self, model: Model, *, layers: tuple[str, ...] | None = (STEM,), eta: float = 0.0028
    ) -> None:
        super().__init__(model, layers=layers, eta=eta)

    def step(self) -> Tensor | float:
        return self.eta * self.model.std


@dataclass(frozen=True, kw_only=True)
class WholeLevelPGD(PGD):
    r"""PGD that cuts its start and every step to whole levels of 1/255, towards 0.

    As the code of Chen et al., *Robust Out-of-distribution Detection for Neural Networks*,
    arXiv:2003.09711: at eps = 1/255 it starts at x, and few pixels get beyond 3/255.
    """

    def climb(self, goal: AnyGoal, x: Images, threat: Threat, noise: Noise) -> Images | Best:
        if not isinstance(threat, Linf):
            raise InputError(
                f"expected an L-infinity threat for steps of whole levels, got {threat}: "
                "in another norm a step is less than a level per pixel and is cut to none"
            )
        return super().climb(goal, x, _WholeLevels(threat.eps), noise)


def aloe_official() -> WholeLevelPGD:
    """`PGD.aloe` as coded."""
    return WholeLevelPGD(steps=10, step=1 / 255, keep="last")


class _WholeLevels(Linf):
    """A ball in which random points and every step are whole levels from its centre."""

    def sample(self, noise: Noise) -> Images:
        return _whole(255 * super().sample(noise))

    def move(self, at: Images, along: Images, length: float | Tensor, x: Images) -> Images:
        # levels are added, not pixels: float32 makes 2.9999998 of 3 levels
        return self.project(x + _whole(255 * (at - x) + 255 * (length * along)), x)


def _whole(levels: Images) -> Images:
    """Whole levels, in pixel units."""
    return levels.trunc() / 255


def aloe_auroc(*, inside: ArrayLike, outside: ArrayLike) -> float:
    """P(s_out > s_in): ties count as errors, as in ALOE's code."""
    c = curve(inside, outside)
    return float((np.diff(c.kept_out) * c.kept_in[:-1]).sum() / (c.n_in * c.n_out))
