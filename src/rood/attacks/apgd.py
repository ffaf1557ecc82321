"""Projected gradient ascent that chooses its own step size."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rood.attacks.base import (
    AnyGoal,
    Attack,
    Best,
    at_least_one,
    starting_points,
    value_and_gradient,
)
from rood.seeds import Noise
from rood.shapes import Images, wide
from rood.threat import Threat

MOMENTUM = 0.75  # weight of the new step against the last
ENOUGH = 0.75  # share of steps that must raise the goal, or the step is halved


@dataclass(frozen=True, kw_only=True)
class APGD(Attack):
    r"""x_{t+1} = P(x_t + a (P(x_t + s_t ascent(grad)) - x_t) + (1 - a) (x_t - x_{t-1})), a = 0.75.

    Each image starts with s = 2 eps and halves its step, going back to its best point, when at a
    checkpoint too few steps have raised the goal or neither step nor best value has changed. Croce
    & Hein, *Reliable evaluation of adversarial robustness with an ensemble of diverse
    parameter-free attacks*, ICML 2020, arXiv:2003.01690. The goal is any number per image, not only
    a classification loss.
    """

    steps: int = 100
    restarts: int = 1
    first_step: float = 2.0  # in units of eps
    random_start: bool = True  # False: the first restart begins at x itself

    def __post_init__(self) -> None:
        at_least_one(steps=self.steps, restarts=self.restarts)

    def climb(self, goal: AnyGoal, x: Images, threat: Threat, noise: Noise) -> Best:
        best = Best(x)
        for start in starting_points(goal, x, threat, noise, self.restarts, self.random_start):
            found, value = self._run(goal, start, x, threat)
            best.offer(found, value)
        return best

    def _run(
        self, goal: AnyGoal, start: Images, x: Images, threat: Threat
    ) -> tuple[Images, Tensor]:
        value, gradient = value_and_gradient(goal, start)
        best = Best(x)
        best.offer(start, value)
        best_gradient = gradient
        x_t = x_last = start
        step = torch.full_like(value, self.first_step * threat.eps)
        rises, since, halved = torch.zeros_like(value), 0, torch.ones_like(value, dtype=torch.bool)
        at_last_check = best.value
        checks = checkpoints(self.steps)
        for t in range(self.steps):
            ahead = threat.advance(x_t, gradient, wide(step), x)
            a = 1.0 if t == 0 else MOMENTUM
            x_new = threat.project(x_t + a * (ahead - x_t) + (1 - a) * (x_t - x_last), x)
            x_last, x_t, before = x_t, x_new, value
            if t == self.steps - 1:
                with torch.no_grad():
                    best.offer(x_t, goal(x_t))
                break
            value, gradient = value_and_gradient(goal, x_t)
            rises, since = rises + (value > before), since + 1
            best_gradient = torch.where(wide(value > best.value), gradient, best_gradient)
            best.offer(x_t, value)
            if t + 1 in checks:
                stuck = ~halved & (best.value <= at_last_check)
                halve = (rises < ENOUGH * since) | stuck
                step = torch.where(halve, step / 2, step)
                back = wide(halve)
                x_t, x_last = (torch.where(back, best.x, v) for v in (x_t, x_last))
                value = torch.where(halve, best.value, value)
                gradient = torch.where(back, best_gradient, gradient)
                halved, at_last_check = halve, best.value
                rises, since = torch.zeros_like(rises), 0
        return best.x, best.value


def checkpoints(steps: int) -> set[int]:
    """The steps after which the step size is reviewed: AutoAttack's schedule, in whole steps.

    The first distance is 0.22 of all steps; each further one is shorter by 0.03, down to 0.06, and
    at least one step, so that a short run still ends with short steps.
    """
    gap, least, less = (max(int(share * steps), 1) for share in (0.22, 0.06, 0.03))
    found, t = set[int](), gap
    while t <= steps:
        found.add(t)
        gap = max(gap - less, least)
        t += gap
    return found
