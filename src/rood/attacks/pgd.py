"""Projected gradient ascent."""

from dataclasses import dataclass
from typing import Literal

import torch

from rood.attacks.base import (
    AnyGoal,
    Attack,
    Best,
    at_least_one,
    check_keep,
    starting_points,
    value_and_gradient,
)
from rood.errors import InputError
from rood.seeds import Noise
from rood.shapes import Images
from rood.threat import Linf, Threat


@dataclass(frozen=True, kw_only=True)
class PGD(Attack):
    r"""x_{t+1} = P(x_t + step ascent(grad goal(x_t))), keeping the best x_t of all restarts.

    P projects to the threat model; starts are drawn from it. Madry et al., *Towards Deep Learning
    Models Resistant to Adversarial Attacks*, ICLR 2018, arXiv:1706.06083. `aloe` is the attack of
    Chen et al., *Robust Out-of-distribution Detection for Neural Networks*, arXiv:2003.09711, as
    written; `aloe_official` as its code has it.
    """

    steps: int = 40
    step: float | None = None  # in pixel units; None means 2.5 eps / steps
    restarts: int = 1
    random_start: bool = True  # False: the first restart begins at x itself
    keep: Literal["best", "last"] = "best"
    truncate: bool = False  # cut the start and every step to whole levels of 1/255, towards 0

    def __post_init__(self) -> None:
        at_least_one(steps=self.steps, restarts=self.restarts)
        check_keep(self.keep, self.restarts)

    @classmethod
    def aloe(cls) -> "PGD":
        """ALOE's attack on detectors and on classifiers alike; the goal is what differs."""
        return cls(steps=10, step=1 / 255, keep="last")

    @classmethod
    def aloe_official(cls) -> "PGD":
        """The same in whole levels: at eps = 1/255 it starts at x, beyond 3/255 it hardly gets."""
        return cls(steps=10, step=1 / 255, keep="last", truncate=True)

    def climb(self, goal: AnyGoal, x: Images, threat: Threat, noise: Noise) -> Images | Best:
        step = 2.5 * threat.eps / self.steps if self.step is None else self.step
        threat = _in_whole_levels(threat) if self.truncate else threat
        best = Best(x)
        for start in starting_points(goal, x, threat, noise, self.restarts, self.random_start):
            x_t = start
            for _ in range(self.steps):
                value, gradient = value_and_gradient(goal, x_t)
                if self.keep == "best":
                    best.offer(x_t, value)
                move = step * threat.ascent(gradient)
                if self.truncate:  # float32 makes 2.9999998 of 3 levels, and 3 of 2.9999998 + 1
                    x_t = threat.project(x + _whole(255 * (x_t - x) + 255 * move), x)
                else:
                    x_t = threat.project(x_t + move, x)
            if self.keep == "last":
                return x_t
            with torch.no_grad():
                best.offer(x_t, goal(x_t))
        return best


class _WholeLevels(Linf):
    """A ball whose random points are whole levels from its centre."""

    def sample(self, noise: Noise) -> Images:
        return _whole(255 * super().sample(noise))


def _in_whole_levels(threat: Threat) -> _WholeLevels:
    if not isinstance(threat, Linf):
        raise InputError(
            f"expected an L-infinity threat for steps of whole levels, got {threat}: "
            "in another norm a step is less than a level a pixel, and is cut to none"
        )
    return _WholeLevels(threat.eps)


def _whole(levels: Images) -> Images:
    """Whole levels, in pixel units."""
    return levels.trunc() / 255
