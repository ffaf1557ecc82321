"""The best of many random points: the baseline that every gradient attack must beat."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from rood.attacks.base import AnyGoal, Attack, Best, at_least_one
from rood.seeds import Noise
from rood.shapes import Images
from rood.threat import Threat


@dataclass(frozen=True, kw_only=True)
class RandomSearch(Attack):
    r"""argmax of the goal over `queries` points: half uniform in the ball, half its corners.

    Corners are full steps along random signs, where a nearly linear goal has its optimum. Needs no
    gradient: where it beats a gradient attack, the gradient is masked (Athalye et al., *Obfuscated
    Gradients Give a False Sense of Security*, arXiv:1802.00420).
    """

    uses_gradient: ClassVar[bool] = False

    queries: int = 50

    def __post_init__(self) -> None:
        at_least_one(queries=self.queries)

    @torch.no_grad()
    def climb(self, goal: AnyGoal, x: Images, threat: Threat, noise: Noise) -> Images:
        best = Best(x)
        for query in range(self.queries):
            if query % 2:
                delta = threat.eps * threat.uphill(noise.uniform() - 0.5, x)
            else:
                delta = threat.sample(noise)
            candidate = threat.project(x + delta, x)
            best.offer(candidate, goal(candidate))
        return best.x
