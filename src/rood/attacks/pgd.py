"""Projected gradient ascent."""

from dataclasses import dataclass
from typing import Literal

import torch

from rood.attacks.base import AnyGoal, Attack, Best, starting_points, value_and_gradient
from rood.errors import InputError
from rood.seeds import Noise
from rood.shapes import Images
from rood.threat import Threat


@dataclass(frozen=True, kw_only=True)
class PGD(Attack):
    r"""x_{t+1} = P(x_t + step ascent(grad goal(x_t))), keeping the best x_t of all restarts.

    P projects to the threat model; starts are drawn from it. Madry et al., *Towards Deep Learning
    Models Resistant to Adversarial Attacks*, ICLR 2018, arXiv:1706.06083.
    """

    steps: int = 40
    step: float | None = None  # in pixel units; None means 2.5 eps / steps
    restarts: int = 1
    random_start: bool = True  # False: the first restart begins at x itself
    keep: Literal["best", "last"] = "best"

    def __post_init__(self) -> None:
        if self.steps < 1 or self.restarts < 1:
            raise InputError(
                f"expected steps >= 1 and restarts >= 1, got {self.steps} and {self.restarts}"
            )
        if self.keep == "last" and self.restarts > 1:
            raise InputError(f'expected one restart to keep the "last" of, got {self.restarts}')

    def climb(self, goal: AnyGoal, x: Images, threat: Threat, noise: Noise) -> Images:
        step = 2.5 * threat.eps / self.steps if self.step is None else self.step
        best = Best(x)
        for start in starting_points(goal, x, threat, noise, self.restarts, self.random_start):
            x_t = start
            for _ in range(self.steps):
                value, gradient = value_and_gradient(goal, x_t)
                best.offer(x_t, value)
                x_t = threat.project(x_t + step * threat.ascent(gradient), x)
            if self.keep == "last":
                return x_t
            with torch.no_grad():
                best.offer(x_t, goal(x_t))
        return best.x
