"""The worst of several attacks for each image: an AutoAttack for OOD scores."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rood.attacks._bpda import among_fixed_images, straight_through
from rood.attacks.apgd import APGD
from rood.attacks.base import (
    DRAWS,
    AnyGoal,
    Attack,
    Best,
    Goal,
    as_goal,
    in_expectation,
    judged,
    mean_of,
    value_and_gradient,
)
from rood.attacks.monotone_pgd import MonotonePGD
from rood.attacks.pgd import PGD
from rood.attacks.square import Square
from rood.errors import CapabilityError, InputError
from rood.seeds import Noise
from rood.shapes import Images, Scores, wide
from rood.threat import Threat, on_the_grid, to_8_bit

Tier = Literal["quick", "standard", "full"]
OTHERS = 3  # fixed images in the batch of each one, where a score depends on its batch
REACH = 0.1  # of eps: the step over which a gradient should foretell the goal
ROUGH = 0.25  # the share of what it foretells below which gradients are averaged
AROUND, POINTS = 0.5, 8  # of eps: how far from an image, and at how many points
FEW_AIMS, MORE_STEPS = 5, 3  # up to so many aims get so many times the steps
STALLED = 0.01  # of what an image has gained: a round that adds less is its last
LESS, FEWER = 0.9, 3  # steps and starts of each round, where a detector brings surrogates
MORE_DRAWS = 32  # of a stochastic goal, where its last points are found and chosen


class Stage(NamedTuple):
    """One attack, and what it climbs."""

    name: str
    # own: the goal itself, from x; aside: each related goal; surrogates: those of the detector
    # alone; averaged: the goal averaged around the best point, where its gradient misleads;
    # best: the goal itself, from each of the best points so far
    climbs: Literal["own", "aside", "surrogates", "averaged", "best"]
    attack: Attack
    keep: int = 1  # of the best points, for each image
    rounds: int = 1  # again from the new best point, as long as an image gains
    draws: int = DRAWS  # of a stochastic goal
    few_aims: int = FEW_AIMS  # up to so many get more steps

    def longer(self, aims: int) -> "Stage":
        """The same with more steps where there are few aims."""
        return self if aims > self.few_aims else self._times(MORE_STEPS)

    def beside_surrogates(self) -> "Stage":
        """The same with fewer steps, so that climbs of surrogates add nothing to the cost."""
        if self.climbs == "aside":
            return self._replace(few_aims=0)
        if self.climbs == "best":
            return self._replace(keep=min(self.keep, FEWER))._times(LESS)
        return self

    def _times(self, share: float) -> "Stage":
        if not isinstance(self.attack, APGD):
            return self
        return self._replace(attack=replace(self.attack, steps=round(share * self.attack.steps)))


def _stages(tier: Tier, surrogates: bool) -> tuple[Stage, ...]:
    """The stages of a tier; in `standard`, surrogates take the place of the random start."""
    found = _all_stages(tier)
    if tier != "standard" or not surrogates:
        return found
    return tuple(s.beside_surrogates() for s in found if s.name != "random")


def _all_stages(tier: Tier) -> tuple[Stage, ...]:
    def climb(steps: int, first_step: float = 2.0, restarts: int = 1) -> APGD:
        return APGD(steps=steps, first_step=first_step, restarts=restarts, random_start=False)

    if tier == "quick":
        return (
            Stage("direct", "own", climb(20)),
            Stage("aside", "aside", climb(5)),
            Stage("surrogates", "surrogates", climb(10)),
            Stage("averaged", "averaged", climb(5)),
            Stage("first round", "best", climb(5, 0.5), keep=2),
            Stage("polish", "best", climb(10, 0.5)),
        )
    if tier == "standard":
        return (
            Stage("direct", "own", climb(20)),
            Stage("random", "own", APGD(steps=10)),
            Stage("aside", "aside", climb(5)),
            Stage("surrogates", "surrogates", climb(20)),
            Stage("averaged", "averaged", climb(5), rounds=4),
            Stage("first round", "best", climb(12, 0.5), keep=4),
            Stage("second round", "best", climb(30, 0.5), keep=2),
            Stage("blind", "best", Square(queries=100)),
            Stage("polish", "best", climb(40, 0.5), rounds=2, draws=MORE_DRAWS),
        )
    return (
        Stage("direct", "own", climb(500, restarts=5)),
        Stage("monotone", "own", MonotonePGD(steps=200, restarts=3)),
        Stage("aside", "aside", climb(50)),
        Stage("surrogates", "surrogates", climb(100)),
        Stage("averaged", "averaged", climb(50)),
        Stage("first round", "best", climb(50, 0.5), keep=8),
        Stage("second round", "best", climb(100, 0.5), keep=4),
        Stage("blind", "best", Square(queries=5000)),
        Stage("polish", "best", climb(200, 0.5), rounds=3, draws=MORE_DRAWS),
    )


# for a goal that no gradient leads up: what such a search can do
BY_QUERIES = Stage("queries", "best", Square(queries=1000))


class Reached(NamedTuple):
    """The state of a search after one of its stages."""

    stage: Stage
    value: Scores  # the best of this stage; -inf where an image was done before
    best: Best  # of all stages so far


@dataclass(frozen=True, kw_only=True)
class WorstOf(Attack):
    r"""argmax of the goal over the results of all stages of a tier, for each image.

    Successive halving over starts: short runs of APGD on the goal from x and from a random point,
    on related goals (one class after the other, ID exemplars) and on surrogates (the detector's,
    BPDA); where the gradient does not foretell the goal, on the goal averaged around the image.
    The best points of these go on, fewer and longer from round to round; Square needs no gradient;
    the last rounds climb from the best point of all. Points rounded to 8 bits count too. Nothing is
    tuned to a detector. An image whose value, also in 8 bits, has passed the goal's `enough` leaves
    the batch. In the spirit of Croce & Hein, *Reliable evaluation of adversarial robustness with an
    ensemble of diverse parameter-free attacks*, ICML 2020, arXiv:2003.01690; `full` contains five
    APGD-500 and three MonotonePGD-200, the attack of Meinke et al., *Provably Robust Detection of
    Out-of-distribution Data (almost) for free*, NeurIPS 2022, arXiv:2106.04260.
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
        """The mean of several draws where two differ; fixed batches where scores depend on them."""
        goal = as_goal(goal)
        if goal.stochastic:
            return in_expectation(goal)
        return among_fixed_images(goal, x[:OTHERS]) if _depends_on_its_batch(goal, x) else goal

    def climb(self, goal: AnyGoal, x: Images, threat: Threat, noise: Noise) -> Best:
        *_, last = self.stages(as_goal(goal), x, threat, noise)
        return last.best

    def stages(self, goal: Goal, x: Images, threat: Threat, noise: Noise) -> Iterator[Reached]:
        """The state after each stage; `goal` as `prepared` gives it."""
        search = _Search(goal, x, threat, noise)
        stages = _stages(self.tier, surrogates=bool(goal.variants))
        if not search.has_gradient:
            stages = (*stages, BY_QUERIES)
        for number, stage in enumerate(stages):
            value = search.run(number, stage)
            yield Reached(stage, value, search.best)


@dataclass
class _Search:
    """The candidates of a batch of images, and the best of them."""

    goal: Goal
    x: Images
    threat: Threat
    noise: Noise
    points: list[Images] = field(default_factory=list)  # candidates, each of the whole batch
    values: list[Scores] = field(default_factory=list)  # -inf where an image was done before

    def __post_init__(self) -> None:
        self.judge = judged(self.goal, MORE_DRAWS)  # no search has seen its draws
        self.climbable, self.has_gradient = _climbable(self.goal, self.x)
        self.best = Best(self.x)
        self.whole = on_the_grid(self.x)  # images of whole levels
        every = torch.arange(len(self.x), device=self.x.device)
        self.start = self._value(every, self.x)
        self.best.offer(self.x, self.start)
        self.safe = self.start.clone()  # the best value so far that survives 8-bit storage
        for given in self.goal.starts:
            self._note(every, self.threat.project(given, self.x))

    def run(self, number: int, stage: Stage) -> Scores:
        """The values that a stage reaches for the images that are not done."""
        reached = torch.full_like(self.start, -torch.inf)
        left = (self.safe <= self.goal.enough).nonzero().squeeze(1)
        for again in range(stage.rounds):
            if len(left) == 0:
                break
            before = self.best.value[left]
            for found in self._candidates(stage, left, self.noise.branch(100 * number + again)):
                value = self._note(left, found)
                reached = reached.index_copy(0, left, torch.maximum(reached[left], value))
            gained = self.best.value[left] - before
            going = gained > STALLED * (before - self.start[left]).abs()
            left = left[going & (self.safe[left] <= self.goal.enough)]
        return reached

    def _candidates(self, stage: Stage, left: Tensor, noise: Noise) -> Iterator[Images]:
        """The points that a stage finds, each of all images that are left."""
        goal, x = replace(self.climbable.take(left), starts=()), self.x[left]
        noise = noise.select(left)
        if goal.stochastic:
            goal = in_expectation(goal, stage.draws)
        if stage.climbs == "own":
            yield from self._climbed(stage, goal, x, noise)
        elif stage.climbs == "aside":
            aims = () if goal.aim is None else goal.aim(x)
            for i, aim in enumerate(aims):
                yield from self._climbed(stage.longer(len(aims)), aim, x, noise.branch(i))
        elif stage.climbs == "surrogates":
            yield from self._let_through(stage, goal, x, noise)
            for i, variant in enumerate(goal.variants, start=1):
                yield from self._climbed(stage, variant, x, noise.branch(i))
        elif stage.climbs == "averaged":
            yield from self._averaged(stage, goal, x, self.best.x[left], noise)
        else:
            for i, start in enumerate(self._best_points(stage.keep, left)):
                yield from self._climbed(stage, goal.begin(start), x, noise.branch(i))

    def _climbed(self, stage: Stage, goal: Goal, x: Images, noise: Noise) -> Iterator[Images]:
        """The images the attack ends at; none where it needs a gradient that the goal lacks."""
        try:
            found = stage.attack.climb(goal, x, self.threat, noise)
        except CapabilityError:
            return
        yield self.threat.project(found.x if isinstance(found, Best) else found, x)

    def _let_through(self, stage: Stage, goal: Goal, x: Images, noise: Noise) -> Iterator[Images]:
        """Points found by straight-through gradients, where they differ from autograd's."""
        cut = _cut(goal, x)
        if cut.any():
            # by plain steps: the value may stay the same for many of them
            plain = PGD(steps=getattr(stage.attack, "steps", 20), random_start=False)
            through = stage._replace(attack=plain)
            for found in self._climbed(through, straight_through(goal), x, noise):
                # what an image gets may not depend on whether others of its batch were served
                yield torch.where(wide(cut), found, x)

    def _averaged(
        self, stage: Stage, goal: Goal, x: Images, best: Images, noise: Noise
    ) -> Iterator[Images]:
        try:
            rough = _rough(goal, x, self.threat)
        except CapabilityError:
            return
        some = rough.nonzero().squeeze(1)
        if len(some) == 0:
            return
        part, streams = x[some], noise.branch(0, some)
        smooth = _around(goal.take(some), self.threat, streams)
        for start in (part, best[some]):
            for found in self._climbed(stage, smooth.begin(start), part, streams):
                yield x.index_copy(0, some, found)

    def _best_points(self, keep: int, left: Tensor) -> list[Images]:
        """For each image its best candidates so far, the best first; they alone go on."""
        points = [*self.points, self.best.x]
        values = torch.stack([*self.values, self.best.value])[:, left]  # (p, b)
        same = torch.stack([(p[left] == self.best.x[left]).flatten(1).all(dim=1) for p in points])
        values[:-1] = values[:-1].masked_fill(same[:-1], -torch.inf)  # the last one stands for it
        order = values.topk(min(keep, len(points)), dim=0).indices
        chosen = [_gathered(points, rank, left) for rank in order]
        self.points, self.values = [], []
        return chosen

    def _value(self, left: Tensor, found: Images) -> Scores:
        """The goal of candidates of some images; NaN counts as the lowest value."""
        with torch.no_grad():
            value = self.judge.take(left)(found)
        return value.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)

    def _note(self, left: Tensor, found: Images) -> Scores:
        """Keep a candidate of some images, in whole levels where that is better."""
        value, whole = self._value(left, found), self.whole[left]
        if whole.any():
            some = left[whole]
            levels = to_8_bit(found[whole], self.x[some], self.threat)
            better = value.new_full(value.shape, -torch.inf)
            better[whole] = self._value(some, levels)
            self.safe[some] = torch.maximum(self.safe[some], better[whole])
            levels = found.index_copy(0, whole.nonzero().squeeze(1), levels)
            found = torch.where(wide(better > value), levels, found)
            value = torch.maximum(value, better)
        self.points.append(self.best.x.index_copy(0, left, found))
        self.values.append(torch.full_like(self.start, -torch.inf).index_copy(0, left, value))
        self.best.offer(self.points[-1], self.values[-1])
        self.safe = torch.where(self.whole, self.safe, self.best.value)
        return value


def _gathered(
    points: list[Float[Tensor, "n c h w"]], rank: Tensor, left: Tensor
) -> Float[Tensor, "b c h w"]:
    """For each image at `left` the candidate of the given number."""
    found = points[0][left]
    for number, candidate in enumerate(points):
        found = torch.where(wide(rank == number), candidate[left], found)
    return found


def _climbable(goal: Goal, x: Images) -> tuple[Goal, bool]:
    """The goal, or its straight-through twin where it is cut off from the pixels; and if it can
    be climbed by either.
    """
    through = replace(straight_through(goal), variants=goal.variants, aim=goal.aim)
    for one in (goal, through):
        try:
            value_and_gradient(one, x)
        except CapabilityError:
            continue
        return one, True
    return goal, False


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
    # in float64: the squares of the gradient of a score that is scaled down would underflow
    off, size = (v.flatten(1).double().norm(dim=1) for v in (through - own, through))
    return off > 1e-3 * size


def _rough(goal: Goal, x: Images, threat: Threat) -> Bool[Tensor, " b"]:
    """Where a step of a tenth of eps along the gradient does not gain what it foretells."""
    value, gradient = value_and_gradient(goal, x)
    ahead = (x + REACH * threat.eps * threat.ascent(gradient)).clamp(0, 1)
    foretold = (gradient * (ahead - x)).flatten(1).sum(dim=1)
    with torch.no_grad():
        return ~(goal(ahead) - value >= ROUGH * foretold) | ~(foretold > 0)


def _around(goal: Goal, threat: Threat, noise: Noise) -> Goal:
    """The mean of the goal over fixed points around each image."""
    moves = [AROUND * threat.sample(noise) for _ in range(POINTS)]

    def at(move: Float[Tensor, "b c h w"]) -> Callable[[Images], Scores]:
        return lambda x: goal((x + move).clamp(0, 1))

    return Goal(mean_of([at(move) for move in moves]))


@torch.no_grad()
def _depends_on_its_batch(goal: Goal, x: Images) -> bool:
    """Whether half of the images have other values when scored without the other half."""
    half = torch.arange(len(x) // 2, device=x.device)
    if len(half) < 2 or (goal.rows is None and goal.aim is None):
        return False  # one image is its own batch, and a plain function may count its images
    together, apart = goal(x)[half].double(), goal.take(half)(x[half]).double()
    moved = (apart - together).abs()[together.isfinite() & apart.isfinite()]
    spread = together[together.isfinite()].std()
    rounding = 1e-5 * together[together.isfinite()].abs().mean()
    return bool(moved.mean() > 1e-2 * spread + rounding)
