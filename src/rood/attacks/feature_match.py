"""Gradient ascent with decreasing steps, to match a target closely rather than to move far."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from rood.attacks.base import (
    AnyGoal,
    Attack,
    Best,
    Goal,
    as_goal,
    at_least_one,
    check_keep,
    value_and_gradient,
)
from rood.errors import InputError
from rood.seeds import Noise
from rood.shapes import Images
from rood.threat import L2, Threat

MEMORY = 0.9  # weight of the mean so far against the new direction
FADING = 0.999  # of the largest entry Adamax has seen, per step

Rule = Literal["steepest", "momentum", "adamax"]


@dataclass(frozen=True, kw_only=True)
class FeatureMatch(Attack):
    r"""x_{t+1} = P(x_t + a_t h_t), a_t = eps rate slowing^{t/(steps-1)}, h_t from the gradients.

    Made for -|f(x) - f(x_in)|^2 (`analysis.matching`), raises any goal. h_t is the norm's steepest
    direction, its running mean, or the step of Adamax fed with gradients of unit L2 length. Liang
    et al., *An Algorithm for Out-Of-Distribution Attack to Neural Network Encoder*,
    arXiv:2009.08016. Their steps do not shrink and end about a step's length from the target:
    `paper` is the algorithm as written, `liang` as coded.
    """

    steps: int = 200
    rate: float = 0.3  # the first step, as a share of eps
    slowing: float = 1e-3  # the last step, as a share of the first
    rule: Rule = "momentum"
    restarts: int = 1
    keep: Literal["best", "last"] = "best"

    def __post_init__(self) -> None:
        at_least_one(steps=self.steps, restarts=self.restarts)
        if not (self.rate > 0 and 0 < self.slowing <= 1):
            raise InputError(
                f"expected rate > 0 and slowing in (0, 1], got {self.rate} and {self.slowing}"
            )
        check_keep(self.keep, self.restarts)

    @classmethod
    def paper(cls, *, steps: int = 10_000, restarts: int = 1) -> "FeatureMatch":
        """As written: steps of eps / 100 along the sign (L-infinity) or the gradient (L2)."""
        return cls(steps=steps, rate=0.01, slowing=1.0, rule="steepest", restarts=restarts)

    @classmethod
    def liang(cls, *, steps: int = 100) -> "FeatureMatch":
        """As coded: Adamax, one start, the last iterate.

        Adamax's first step is eps / 100 in every pixel: sqrt(n) times as long as one as written.
        """
        return cls(steps=steps, rate=0.01, slowing=1.0, rule="adamax", keep="last")

    @classmethod
    def example(cls) -> "FeatureMatch":
        """Fewer steps, for the contract checks."""
        return cls(steps=60)

    def climb(self, goal: AnyGoal, x: Images, threat: Threat, noise: Noise) -> Images:
        best = Best(x)
        for x_t in self._starts(as_goal(goal), x, threat, noise):
            direction = self._direction(threat)
            for t in range(self.steps):
                value, gradient = value_and_gradient(goal, x_t)
                if self.keep == "best":
                    best.offer(x_t, value)
                step = threat.eps * self.rate * self.slowing ** (t / max(1, self.steps - 1))
                x_t = threat.move(x_t, direction(gradient, x_t), step, x)
            if self.keep == "last":
                return x_t
            with torch.no_grad():
                best.offer(x_t, goal(x_t))
        return best.x

    def _starts(self, goal: Goal, x: Images, threat: Threat, noise: Noise) -> Iterator[Images]:
        given = goal.starts[: self.restarts]
        yield from (threat.project(start, x) for start in given)
        for _ in range(self.restarts - len(given)):
            # uniform in a cube, which in L2 reaches beyond the ball and is scaled onto its sphere
            yield threat.project(x + threat.eps * (2 * noise.uniform() - 1), x)

    def _direction(self, threat: Threat) -> Callable[[Images, Images], Images]:
        if self.rule == "adamax":
            return _Adamax()
        return _Mean(threat.uphill) if self.rule == "momentum" else threat.uphill


class _Mean:
    """The running mean of directions: oscillations cancel out."""

    def __init__(self, single: Callable[[Images, Images], Images]) -> None:
        self.single = single
        self.t = 0
        self.sum: Images | float = 0.0

    def __call__(self, gradient: Images, at: Images) -> Images:
        self.t += 1
        self.sum = MEMORY * self.sum + (1 - MEMORY) * self.single(gradient, at)
        return self.sum / (1 - MEMORY**self.t)


class _Adamax:
    """Kingma & Ba, *Adam: A Method for Stochastic Optimization*, arXiv:1412.6980, section 7.1."""

    def __init__(self) -> None:
        self.mean = _Mean(lambda unit, at: unit)
        self.largest: Images | None = None

    def __call__(self, gradient: Images, at: Images) -> Images:
        unit = L2(1.0).ascent(gradient)
        size = unit.abs() + 1e-8
        before = size if self.largest is None else FADING * self.largest
        self.largest = torch.maximum(before, size)
        return self.mean(unit, at) / self.largest
