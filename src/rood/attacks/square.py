"""Random search with squares: an attack that needs no gradient."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rood.attacks.base import AnyGoal, Attack, Best, as_goal
from rood.errors import InputError
from rood.seeds import Noise
from rood.shapes import Images, wide
from rood.threat import Threat

# the share of pixels in a square is halved after each of these shares of the queries
HALVED_AFTER = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)


@dataclass(frozen=True, kw_only=True)
class Square(Attack):
    r"""x' = P(x_best + 2 eps ascent(1) s 1_W), kept where the goal rises.

    W is a square of pixels at a random place, s a random sign for each channel, eps ascent(1) the
    largest perturbation that is the same everywhere: in L-infinity a square of +-eps is pasted on,
    in L2 it is added and the sum scaled back to eps. The search begins at the goal's own starts or
    else at x with vertical stripes of +-eps, and the squares shrink as queries are spent.
    Andriushchenko et al., *Square Attack: a query-efficient black-box adversarial attack via random
    search*, ECCV 2020, arXiv:1912.00049. Their L2 version moves bumps from square to square.
    """

    uses_gradient: ClassVar[bool] = False

    queries: int = 1000
    share: float = 0.8  # of the pixels, in the first square

    @classmethod
    def example(cls) -> "Square":
        """A short one, for the checks that every attack must pass."""
        return cls(queries=60)

    def __post_init__(self) -> None:
        if self.queries < 1 or not 0 < self.share <= 1:
            raise InputError(
                f"expected queries >= 1 and a share in (0, 1], got {self.queries} and {self.share}"
            )

    @torch.no_grad()
    def climb(self, goal: AnyGoal, x: Images, threat: Threat, noise: Noise) -> Images:
        best = Best(x)
        height = threat.eps * threat.uphill(torch.ones_like(x), torch.full_like(x, 0.5))
        starts = as_goal(goal).starts or (x + height * _signs(noise.uniform()[:, :, :1, :]),)
        for start in (threat.project(s, x) for s in starts[: self.queries]):
            best.offer(start, goal(start))
        for query in range(len(starts), self.queries):
            square = _squares(x, noise, self._side(query, x))
            bump = 2 * height * square * _signs(noise.uniform()[:, :, :1, :1])
            candidate = threat.project(best.x + bump, x)
            wasted = (candidate == best.x).flatten(1).all(dim=1)
            candidate = torch.where(wide(wasted), threat.project(best.x - bump, x), candidate)
            best.offer(candidate, goal(candidate))
        return best.x

    def _side(self, query: int, x: Images) -> int:
        halvings = sum(query > share * self.queries for share in HALVED_AFTER)
        height, width = x.shape[2:]
        side = round(math.sqrt(self.share * 0.5**halvings * height * width))
        return min(max(side, 1), height, width)


def _squares(x: Images, noise: Noise, side: int) -> Tensor:
    """1 in a square at a random place of each image, 0 elsewhere."""
    height, width = x.shape[2:]
    u = noise.uniform()[:, :1]
    top = (u[:, :, :1, :1] * (height - side + 1)).floor()  # (b, 1, 1, 1)
    left = (u[:, :, :1, -1:] * (width - side + 1)).floor()
    rows = torch.arange(height, device=x.device).view(1, 1, -1, 1) - top
    columns = torch.arange(width, device=x.device).view(1, 1, 1, -1) - left
    return ((rows >= 0) & (rows < side) & (columns >= 0) & (columns < side)).to(x.dtype)


def _signs(u: Tensor) -> Tensor:
    return torch.where(u < 0.5, -1.0, 1.0).to(u.dtype)
