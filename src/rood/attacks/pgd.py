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
from rood.seeds import Noise
from rood.shapes import Images
from rood.threat import Threat


@dataclass(frozen=True, kw_only=True)
class PGD(Attack):
    r"""x_{t+1} = P(x_t + step ascent(grad goal(x_t))), keeping the best x_t of all restarts.

    P projects to the threat model; starts are drawn from it. Madry et al., *Towards Deep Learning
    Models Resistant to Adversarial Attacks*, ICLR 2018, arXiv:1706.06083. `aloe` is the attack of
    Chen et al., *Robust Out-of-distribution Detection for Neural Networks*, arXiv:2003.09711, as
    written.
    """

    steps: int = 40
    step: float | None = None  # in pixel units; None means 2.5 eps / steps
    restarts: int = 1
    random_start: bool = True  # False: the first restart begins at x itself
    keep: Literal["best", "last"] = "best"

    def __post_init__(self) -> None:
        at_least_one(steps=self.steps, restarts=self.restarts)
        check_keep(self.keep, self.restarts)

    @classmethod
    def aloe(cls) -> "PGD":
        """ALOE's attack, on detectors and on classifiers; only the goal differs."""
        return cls(steps=10, step=1 / 255, keep="last")

    def climb(self, goal: AnyGoal, x: Images, threat: Threat, noise: Noise) -> Images | Best:
        step = 2.5 * threat.eps / self.steps if self.step is None else self.step
        best = Best(x)
        for start in starting_points(goal, x, threat, noise, self.restarts, self.random_start):
            x_t = start
            for _ in range(self.steps):
                value, gradient = value_and_gradient(goal, x_t)
                if self.keep == "best":
                    best.offer(x_t, value)
                x_t = threat.advance(x_t, gradient, step, x)
            if self.keep == "last":
                return x_t
            with torch.no_grad():
                best.offer(x_t, goal(x_t))
        return best
