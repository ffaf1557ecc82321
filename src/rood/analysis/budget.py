"""How much an attacker needs: the smallest budget per image, and AUROC as the budget grows."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rood.attacks.apgd import APGD
from rood.attacks.base import Attack, Best, Goal, value_and_gradient
from rood.detectors.base import Detector, check_images
from rood.errors import InputError
from rood.goals import look_in, look_out
from rood.metrics import Interval, summary
from rood.registry import unknown
from rood.seeds import generator
from rood.shapes import Images, Scores, wide
from rood.threat import L2, NORMS, Linf, Threat

Direction = Literal["look_in", "look_out"]
Side = Literal["inside", "outside", "both"]
GOALS: dict[str, Callable[[Detector], Goal]] = {"look_in": look_in, "look_out": look_out}

STEP = (0.3, 0.01)  # of a gradient step, in units of the current eps, from the first to the last
CHANGE = (0.1, 1e-4)  # of eps in a step, as a share of it
NEAR, GROWTH = 8 / 255, 1.25  # how far the first step may go, as a share of the box; then each next


def minimal_eps(
    detector: Detector,
    x: Images,
    threshold: float,  # an image is accepted where its score is at most this
    direction: Direction,
    *,
    norm: str = "linf",
    steps: int = 100,
) -> Scores:
    r"""The smallest eps found at which the decision on each image flips; inf where none was found.

    eps_{t+1} = min(eps_t, |d_best|) (1 - c_t) where x + d_t has flipped, eps_t (1 + c_t) where it
    has not though another has, and |d_t| + gap / |grad|_dual before the first: the distance to the
    boundary of a linear score. d_{t+1} = P(d_t + a_t eps ascent(grad)), P projecting to eps_{t+1};
    a_t and c_t fall along a cosine. Pintor et al., *Fast minimum-norm adversarial attacks through
    adaptive norm constraints*, NeurIPS 2021, arXiv:2102.12827; here steps are relative to eps.
    An upper bound of the true number, since a better search may find less.

    Parameters
    ----------
    detector : Detector
        Fitted.
    x : Tensor of shape (b, c, h, w)
        Images with pixels in [0, 1].
    threshold : float
        An image is accepted where its score is at most this.
    direction : {"look_in", "look_out"}
        Which decision to reach: accepted, or rejected.
    norm : {"linf", "l2"}
    steps : int
        Gradient steps for the score and for each of its surrogates.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> msp = rood.detectors.MSP(model)
    >>> eps = rood.analysis.budget.minimal_eps(msp, x, 0.0, "look_in", steps=20)
    >>> bool((eps[msp.score(x) <= 0] == 0).all())  # accepted as they are
    True
    """
    if steps < 1 or math.isnan(threshold):
        raise InputError(f"expected steps >= 1 and a threshold, got {steps} and {threshold}")
    goal, unit = _goal(detector, direction), _unit(norm)
    sign = -1 if direction == "look_in" else 1

    def flipped(value: Scores) -> Bool[Tensor, " b"]:
        over = value.double() - sign * threshold
        return over >= 0 if direction == "look_in" else over > 0

    check_images(x, detector.model)
    best, found = torch.full_like(x[:, 0, 0, 0], torch.inf), x
    with torch.inference_mode(False), torch.enable_grad():
        x = x.detach().clone() if x.is_inference() else x.detach()
        for climbed in (goal, *goal.variants):
            search = _Search(goal, climbed, unit, sign * threshold, flipped)
            size, at = search.run(x, steps)
            found = torch.where(wide(size < best), at, found)
            best = torch.minimum(best, size)
    with torch.no_grad():  # the search is not trusted: its result is measured again
        true = flipped(detector.score(found) * sign)
    return torch.where(true, best, torch.inf)


@dataclass(frozen=True)
class _Search:
    """One descent in eps, along the gradient of `climbed`, until `goal` has flipped."""

    goal: Goal
    climbed: Goal
    unit: Threat
    wanted: float
    flipped: Callable[[Scores], Bool[Tensor, " b"]]

    def run(self, x: Images, steps: int) -> tuple[Scores, Images]:
        """The least size at which an image had flipped, and the image there."""
        most = self.unit.size(torch.ones_like(x))  # no image in the box is further away
        delta, eps = torch.zeros_like(x), torch.zeros_like(most)
        best, at = torch.full_like(most, torch.inf), x
        for t in range(steps + 1):
            value, gradient = value_and_gradient(self.climbed, x + delta)
            if self.climbed is not self.goal:
                with torch.no_grad():
                    value = self.goal(x + delta)
            size, there = self.unit.size(delta), self.flipped(value)
            better = there & (size < best)
            at = torch.where(wide(better), x + delta, at)
            best = torch.where(better, size, best)
            change = _cosine(CHANGE, t / steps)
            uphill = self.unit.ascent(gradient)
            slope = (gradient * uphill).flatten(1).sum(dim=1)
            linear = size + (self.wanted - value).clamp_min(0) / slope.clamp_min(1e-30)
            # where the score is flat, `linear` is far away, and few come back from there
            linear = linear.clamp(eps * (1 + change), (GROWTH * eps).clamp_min(NEAR * most))
            grown = torch.where(best < torch.inf, eps * (1 + change), linear)
            shrunk = torch.minimum(eps, best) * (1 - change)
            eps = torch.minimum(torch.where(there, shrunk, grown), most)
            moved = delta + _cosine(STEP, t / steps) * wide(eps) * uphill
            delta = self._within(moved, eps, x)
        return best, at

    def _within(self, delta: Images, eps: Scores, x: Images) -> Images:
        """The nearest perturbation of at most eps, its own for each image, in the box."""
        radius = wide(eps.clamp_min(1e-12))
        return (x + radius * self.unit.shrink(delta / radius)).clamp(0, 1) - x


@dataclass(frozen=True)
class BudgetCurve:
    """AUROC with its 95 % interval at every budget, by the side that was attacked."""

    threats: tuple[Threat, ...]  # rising; the first is 0, where nothing is attacked
    auroc: dict[Side, tuple[Interval, ...]]
    inside: Float[Tensor, "t n"]  # attacked scores
    outside: Float[Tensor, "t m"]


def auroc_against_eps(
    detector: Detector,
    x_in: Float[Tensor, "n c h w"],
    x_out: Float[Tensor, "m c h w"],
    epsilons: Sequence[float],  # in pixel units
    *,
    norm: str = "linf",
    attack: Attack | None = None,  # None: APGD of 20 steps, for each budget
    seed: int = 0,
    batch_size: int = 256,
) -> BudgetCurve:
    """AUROC as the budget grows: each attack begins where the one before it ended.

    That point lies in the larger ball too and stays unless a better one is found, so that no score,
    and no AUROC, can recover as eps grows.

    Parameters
    ----------
    detector : Detector
        Fitted.
    x_in, x_out : Tensor of shape (n, c, h, w), (m, c, h, w)
        ID and OOD images.
    epsilons : sequence of float
        Budgets in pixel units; 0 is added.
    attack : Attack, optional
        Run at each budget; APGD with 20 steps if left out.

    Examples
    --------
    >>> model = rood.zoo.load("digits-ce")
    >>> x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> curve = rood.analysis.budget.auroc_against_eps(
    ...     rood.detectors.MSP(model), x, 1 - x, [2 / 255], attack=rood.attacks.PGD(steps=3)
    ... )
    >>> [str(t) for t in curve.threats]
    ['linf:0', 'linf:2/255']
    >>> curve.auroc["both"][1].value <= curve.auroc["both"][0].value
    True
    """
    if not epsilons:
        raise InputError("expected at least one eps, got none")
    if norm not in NORMS:
        raise unknown("norm", norm, NORMS)
    threats = [NORMS[norm](eps) for eps in sorted({0.0, *epsilons})]
    attack = attack or APGD(steps=20)
    path = {
        way: torch.cat(
            [_scores(detector, part, way, threats, attack, seed) for part in x.split(batch_size)],
            dim=1,
        )
        for way, x in (("look_out", x_in), ("look_in", x_out))
    }
    inside, outside = path["look_out"].cpu(), path["look_in"].cpu()
    clean_in, clean_out = inside[:1].expand_as(inside), outside[:1].expand_as(outside)
    sides: dict[Side, tuple[Tensor, Tensor]] = {
        "inside": (inside, clean_out),
        "outside": (clean_in, outside),
        "both": (inside, outside),
    }
    auroc = {side: tuple(map(_auroc, *scores)) for side, scores in sides.items()}
    return BudgetCurve(tuple(threats), auroc, inside, outside)


def _scores(
    detector: Detector, x: Images, way: str, threats: list[Threat], attack: Attack, seed: int
) -> Float[Tensor, "t b"]:
    goal = GOALS[way](detector)
    with torch.no_grad():
        best = Best(x)
        best.offer(x, goal(x))
    found = [best.value]
    for threat in threats[1:]:
        for i, climbed in enumerate(attack.aims(goal)):
            # a fresh generator per batch: an image's noise depends on its pixels, not on its batch
            g = generator(seed, way, str(threat), i)
            reached = attack(climbed.begin(best.x), x, threat, g)
            with torch.no_grad():
                best.offer(reached, goal(reached))
        found.append(best.value)
    return torch.stack(found) * (-1 if way == "look_in" else 1)


def _auroc(inside: Float[Tensor, " n"], outside: Float[Tensor, " m"]) -> Interval:
    return summary(inside, outside, resamples=1)["auroc"]  # its interval needs none


def _goal(detector: Detector, direction: str) -> Goal:
    if direction not in GOALS:
        raise unknown("direction", direction, GOALS)
    return GOALS[direction](detector)


def _unit(norm: str) -> Threat:
    """The ball of radius 1; balls of other radii are scaled copies of it."""
    scaled = {t.norm: t for t in (Linf, L2)}
    if norm not in scaled:
        raise unknown("norm", norm, scaled)
    return scaled[norm](1.0)


def _cosine(ends: tuple[float, float], share: float) -> float:
    first, last = ends
    return last + (first - last) * (1 + math.cos(math.pi * share)) / 2
