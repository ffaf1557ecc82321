"""Gradient ascent whose goal never falls, from several kinds of starting points."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from rood.attacks.base import (
    AnyGoal,
    Attack,
    Best,
    as_goal,
    at_least_one,
    value_and_gradient,
)
from rood.seeds import Noise
from rood.shapes import Images, Scores, wide
from rood.threat import Threat

MOMENTUM = 0.9
SHRINK, GROW = 0.5, 1.1  # factors of the step, after a fall and otherwise
TINY = 1e-4  # standard deviation of the small Gaussian start, in pixel units


@dataclass(frozen=True, kw_only=True)
class MonotonePGD(Attack):
    r"""v = 0.9 v + grad / |grad|_1, x' = P(x + s ascent(v)), taken unless the goal falls.

    Each image has its own step s, which grows by 1.1 when the step is taken and is halved when not.
    The restarts begin at the goal's own starts, then at x without contrast, at x with a little
    Gaussian noise, and at random points. Bitterwolf et al., *Certifiably Adversarially Robust
    Detection of Out-of-Distribution Data*, NeurIPS 2020, arXiv:2007.08473. Theirs steps along v
    itself with an absolute rate. Ours follows the threat's norm, so that no rate has to be tuned to
    the goal, and resets v after a fall: halving s does not help where v is no ascent direction.
    """

    steps: int = 200
    restarts: int = 3
    first_step: float = 1.0  # in units of eps

    @classmethod
    def example(cls) -> "MonotonePGD":
        """A short one, for the checks that every attack must pass."""
        return cls(steps=25)

    def __post_init__(self) -> None:
        at_least_one(steps=self.steps, restarts=self.restarts)

    def climb(self, goal: AnyGoal, x: Images, threat: Threat, noise: Noise) -> Images:
        best = Best(x)
        for start in islice(_starts(goal, x, threat, noise), self.restarts):
            best.offer(*self._run(goal, start, x, threat))
        return best.x

    def _run(
        self, goal: AnyGoal, start: Images, x: Images, threat: Threat
    ) -> tuple[Images, Scores]:
        x_t = start
        value, gradient = _known(*value_and_gradient(goal, x_t))
        velocity = torch.zeros_like(x)
        step = torch.full_like(value, self.first_step * threat.eps)
        for t in range(self.steps):
            push = MOMENTUM * velocity + gradient / _total(gradient)
            x_new = threat.advance(x_t, push, wide(step), x)
            if t < self.steps - 1:
                new_value, new_gradient = _known(*value_and_gradient(goal, x_new))
            else:
                with torch.no_grad():
                    new_value, new_gradient = _known(goal(x_new), gradient)
            taken = new_value >= value  # equal too: a plateau may be crossed
            here = wide(taken)
            x_t, gradient = torch.where(here, x_new, x_t), torch.where(here, new_gradient, gradient)
            velocity = torch.where(here, push, torch.zeros_like(push))
            value = torch.where(taken, new_value, value)
            step = torch.where(taken, GROW * step, SHRINK * step).clamp(max=2 * threat.eps)
        return x_t, value


def _starts(goal: AnyGoal, x: Images, threat: Threat, noise: Noise) -> Iterator[Images]:
    for given in as_goal(goal).starts:
        yield threat.project(given, x)
    grey = x.flatten(1).mean(dim=1)
    yield threat.project(wide(grey).expand_as(x), x)
    yield threat.project(x + TINY * noise.normal(), x)
    while True:
        yield threat.project(x + threat.sample(noise), x)


def _known(value: Scores, gradient: Images) -> tuple[Scores, Images]:
    """NaN counts as the lowest value, so that any other point is better."""
    return value.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf), gradient


def _total(gradient: Images) -> Tensor:
    return wide(gradient.abs().flatten(1).sum(dim=1).clamp_min(torch.finfo(gradient.dtype).tiny))
