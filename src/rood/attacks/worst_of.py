"""The worst of several attacks for each image: an AutoAttack for OOD scores."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from rood.attacks._bpda import among_fixed_images, straight_through
from rood.attacks.apgd import APGD
from rood.attacks.base import (
    AnyGoal,
    Attack,
    Best,
    Goal,
    as_goal,
    in_expectation,
    value_and_gradient,
)
from rood.attacks.monotone_pgd import MonotonePGD
from rood.attacks.square import Square
from rood.errors import CapabilityError, InputError
from rood.seeds import Noise
from rood.shapes import Images, Scores, wide
from rood.threat import Threat

Tier = Literal["quick", "standard", "full"]
DRAWS = 8  # calls averaged where a goal is stochastic
OTHERS = 3  # fixed images in the batch of each one, where a score depends on its batch


class Stage(NamedTuple):
    """One attack, and what it climbs."""

    name: str
    attack: Attack
    # own: the goal itself; best: the goal itself, from the best point so far; aside: each related
    # goal by the attack `aside`, followed by `attack` on the goal itself
    climbs: Literal["own", "best", "aside"]
    aside: Attack | None = None


def _stages(tier: Tier) -> tuple[Stage, ...]:
    from_x = {"random_start": False}
    if tier == "quick":
        return (
            Stage("direct", APGD(steps=20, **from_x), "own"),
            Stage("aside", APGD(steps=5, first_step=0.5), "aside", APGD(steps=10, **from_x)),
            Stage("polish", APGD(steps=10, first_step=0.5), "best"),
        )
    if tier == "standard":
        return (
            Stage("probe", APGD(steps=10, **from_x), "own"),
            Stage("direct", APGD(steps=100, **from_x), "own"),
            Stage("random", APGD(steps=100), "own"),
            Stage("aside", APGD(steps=20, first_step=0.5), "aside", APGD(steps=20, **from_x)),
            Stage("monotone", MonotonePGD(steps=40, restarts=2), "own"),
            Stage("blind", Square(queries=100), "best"),
            Stage("polish", APGD(steps=100, first_step=0.5), "best"),
        )
    return (
        Stage("probe", APGD(steps=10, **from_x), "own"),
        Stage("direct", APGD(steps=500, restarts=5, **from_x), "own"),
        Stage("monotone", MonotonePGD(steps=200, restarts=3), "own"),
        Stage("aside", APGD(steps=100, first_step=0.5), "aside", APGD(steps=100, **from_x)),
        Stage("blind", Square(queries=5000), "best"),
        Stage("polish", APGD(steps=200, first_step=0.5), "best"),
    )


class Reached(NamedTuple):
    """The state of a search after one of its stages."""

    stage: Stage
    value: Scores  # the best of this stage; -inf where an image was done before
    best: Best  # of all stages so far


@dataclass(frozen=True, kw_only=True)
class WorstOf(Attack):
    r"""argmax of the goal over the results of all stages of a tier, for each image.

    Stages: APGD on the goal from x and from a random point; APGD on related goals (surrogates,
    BPDA, one class after the other, ID exemplars), each followed by APGD on the goal itself;
    MonotonePGD; Square, which needs no gradient; and APGD from the best point of all. Nothing is
    tuned to a detector. An image whose value has passed the goal's `enough` leaves the batch. In
    the spirit of Croce & Hein, *Reliable evaluation of
    adversarial robustness with an ensemble of diverse parameter-free attacks*, ICML 2020,
    arXiv:2003.01690; `full` contains five APGD-500 and three MonotonePGD-200, the attack of Meinke
    et al., *Provably Robust Detection of Out-of-distribution Data (almost) for free*, NeurIPS 2022,
    arXiv:2106.04260.
    """

    tier: Tier = "standard"

    def __post_init__(self) -> None:
        if self.tier not in ("quick", "standard", "full"):
            raise InputError(f"expected tier quick, standard or full, got {self.tier!r}")

    @classmethod
    def example(cls) -> "WorstOf":
        """The quick tier, for the contract checks."""
        return cls(tier="quick")

    def aims(self, goal: Goal) -> tuple[Goal, ...]:
        """The goal alone: a separate stage climbs the related goals."""
        return (goal,)

    def prepared(self, goal: AnyGoal, x: Images) -> Goal:
        """The mean of several calls where two differ; fixed batches where scores depend on them."""
        goal = as_goal(goal)
        if goal.stochastic:
            return in_expectation(goal, DRAWS)
        return among_fixed_images(goal, x[:OTHERS]) if _depends_on_its_batch(goal, x) else goal

    def climb(self, goal: AnyGoal, x: Images, threat: Threat, noise: Noise) -> Best:
        *_, last = self.stages(as_goal(goal), x, threat, noise)
        return last.best

    def stages(self, goal: Goal, x: Images, threat: Threat, noise: Noise) -> Iterator[Reached]:
        """The state after each stage; `goal` as `prepared` gives it."""
        best = Best(x)
        with torch.no_grad():
            best.offer(x, goal(x))
        for i, stage in enumerate(_stages(self.tier)):
            left = (best.value <= goal.enough).nonzero().squeeze(1)
            value = torch.full_like(best.value, -torch.inf)
            if len(left):
                here = goal if len(left) == len(x) else goal.take(left)
                part, streams = Best(x[left]), noise.branch(i, left)
                for found in _run(stage, here, x[left], best.x[left], threat, streams):
                    with torch.no_grad():
                        part.offer(found, here(found))
                value = value.index_copy(0, left, part.value)
                best.offer(best.x.index_copy(0, left, part.x), value)
            yield Reached(stage, value, best)


def _run(
    stage: Stage, goal: Goal, x: Images, best: Images, threat: Threat, noise: Noise
) -> Iterator[Images]:
    """The candidates of one stage, each a batch of images."""
    if stage.climbs == "own":
        yield from _climbed(stage.attack, goal, x, threat, noise)
    elif stage.climbs == "best":
        yield from _climbed(stage.attack, goal.begin(best), x, threat, noise)
    else:
        assert stage.aside is not None
        for i, other, served in _others(goal, x):
            for aside in _climbed(stage.aside, other, x, threat, noise.branch(i)):
                yield _where(served, aside, x)
                for found in _climbed(stage.attack, goal.begin(aside), x, threat, noise.branch(i)):
                    yield _where(served, found, x)


def _others(goal: Goal, x: Images) -> Iterator[tuple[int, Goal, Tensor]]:
    """The related goals, numbered, each with a mask of the images it may help."""
    everywhere = torch.ones(len(x), dtype=torch.bool, device=x.device)
    cut = _cut(goal, x)
    if cut.any():
        yield 0, straight_through(goal), cut
    aimed = () if goal.aim is None else goal.aim(x)
    for i, other in enumerate((*goal.variants, *aimed), start=1):
        yield i, other, everywhere


def _cut(goal: Goal, x: Images) -> Bool[Tensor, " b"]:
    """Where the straight-through gradient differs from autograd's; nowhere if there is none."""
    try:
        _, through = value_and_gradient(straight_through(goal), x)
    except CapabilityError:
        return torch.zeros(len(x), dtype=torch.bool, device=x.device)
    try:
        _, own = value_and_gradient(goal, x)
    except CapabilityError:
        own = torch.zeros_like(through)
    off, size = ((v.flatten(1)).norm(dim=1) for v in (through - own, through))
    return off > 1e-3 * size


def _where(served: Bool[Tensor, " b"], found: Images, x: Images) -> Images:
    # what an image gets may not depend on whether others of its batch were served
    return torch.where(wide(served), found, x)


def _climbed(
    attack: Attack, goal: Goal, x: Images, threat: Threat, noise: Noise
) -> Iterator[Images]:
    """The images the attack ends at; none where it needs a gradient that the goal lacks."""
    try:
        found = attack.climb(goal, x, threat, noise)
    except CapabilityError:
        return
    yield threat.project(found.x if isinstance(found, Best) else found, x)


@torch.no_grad()
def _depends_on_its_batch(goal: Goal, x: Images) -> bool:
    """Whether half of the images have other values when scored without the other half."""
    half = torch.arange(len(x) // 2, device=x.device)
    if len(half) < 2 or (goal.rows is None and goal.aim is None):
        return False  # one image is its own batch, and a plain function may count its images
    together, apart = goal(x)[half], goal.take(half)(x[half])
    spread = together.std() + 1e-3 * together.abs().mean()
    return bool((apart - together).abs().mean() > 1e-2 * spread)
