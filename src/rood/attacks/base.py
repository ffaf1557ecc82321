"""The contract every attack keeps.

An attack raises a number for each image, `goal(x) -> (b,)`, without leaving a threat model. It
knows nothing of detectors, labels or norms: *what* to raise is a goal (`rood.goals`), *where* it
may go is a `Threat`, and *how* to climb is the attack.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import torch
from torch import Generator, Tensor
from torch.autograd.function import BackwardCFunction

from rood.errors import CapabilityError, InputError
from rood.seeds import Noise
from rood.shapes import Images, Scores, wide
from rood.threat import Threat

DRAWS = 8  # calls averaged where a goal is stochastic
FRESH = 1 << 20  # the first of the draws that judge a result: no search has seen them


@dataclass(frozen=True)
class Goal:
    """A number to raise for each image, with advice on how.

    Only `function` is needed; the rest is advice that attacks may take.
    """

    function: Callable[[Images], Scores]
    variants: tuple["Goal", ...] = ()  # other goals whose optima are worth trying
    starts: tuple[Images, ...] = ()  # images to begin at, one for each image attacked
    stochastic: bool = False  # two calls may differ: attack the expectation
    enough: float = math.inf  # beyond it nothing is gained: such an image is done
    aim: Callable[[Images], tuple["Goal", ...]] | None = None  # variants for given images
    rows: Callable[[Tensor], "Goal"] | None = None  # the goal of some images; None: serves any
    single: "Goal | None" = None  # where this is a mean over draws: the goal of one draw

    def __call__(self, x: Images) -> Scores:
        return self.function(x)

    def take(self, index: Tensor) -> "Goal":
        """The goal of the images at `index` alone."""
        part = self if self.rows is None else self.rows(index)
        return replace(
            part,
            variants=tuple(v.take(index) for v in self.variants),
            starts=tuple(s[index] for s in self.starts),
        )

    def begin(self, *starts: Images) -> "Goal":
        """The same goal, climbed from these images first."""
        return replace(self, starts=starts)


AnyGoal = Goal | Callable[[Images], Scores]  # a plain function is a goal too


def as_goal(goal: AnyGoal) -> Goal:
    """A goal; a plain function becomes one."""
    return goal if isinstance(goal, Goal) else Goal(goal)


def in_expectation(goal: Goal, draws: int = DRAWS, first: int = 0) -> Goal:
    """The mean of a stochastic goal over numbered draws, the same ones at every call.

    With common random numbers two points are compared by what they are, not by their luck. Only
    torch's own generators are seeded, and they are left as they were.
    """
    single = goal if goal.single is None else goal.single
    drawn = [_drawn(single.function, number) for number in range(first, first + draws)]
    rows = goal.rows
    return replace(
        goal,
        function=mean_of(drawn),
        variants=tuple(in_expectation(v, draws, first) for v in goal.variants),
        rows=None if rows is None else lambda index: in_expectation(rows(index), draws, first),
        single=single,
    )


def judged(goal: Goal, draws: int = DRAWS) -> Goal:
    """The goal by which results are compared: of a stochastic one the mean over fresh draws."""
    return in_expectation(goal, draws, FRESH) if goal.stochastic else goal


def mean_of(functions: Sequence[Callable[[Images], Scores]]) -> Callable[[Images], Scores]:
    """The mean of several functions; their gradients need the memory of one."""

    def function(x: Images) -> Scores:
        if not x.requires_grad:
            return torch.stack([f(x) for f in functions]).mean(dim=0)
        values, slope = [], torch.zeros_like(x)
        for f in functions:
            value, gradient = value_and_gradient(f, x)
            values.append(value)
            slope += gradient / len(functions)
        along = ((x - x.detach()) * slope).flatten(1).sum(dim=1)  # 0, with the mean's gradient
        return torch.stack(values).mean(dim=0) + along

    return function


def _drawn(function: Callable[[Images], Scores], number: int) -> Callable[[Images], Scores]:
    """The function with torch's generators seeded by the number of the draw."""

    def seeded(x: Images) -> Scores:
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
            torch.default_generator.manual_seed(number)
            if x.is_cuda:
                torch.cuda.default_generators[x.get_device()].manual_seed(number)
            return function(x)

    return seeded


@dataclass(frozen=True, kw_only=True)
class Attack(ABC):
    """Raises a goal within a threat model. Hyper-parameters are fields; nothing else is stored."""

    uses_gradient: ClassVar[bool] = True

    # False only in the inner loop of training: what `climb` found is taken without the two forward
    # passes that compare it with the start
    compare: bool = True

    @final
    def __call__(self, goal: AnyGoal, x: Images, threat: Threat, generator: Generator) -> Images:
        """The best image found. It is in the threat model and never worse than x.

        The result for an image depends on that image, the goal and the generator's state alone, not
        on the batch around it.
        """
        _check_images(x, values=self.compare)
        x = x.detach()
        if len(x) == 0:
            return x
        with torch.inference_mode(False), torch.enable_grad():
            x = x.clone() if x.is_inference() else x
            goal = self.prepared(goal, x)
            begin = worst_origin(goal, x, threat)
            climbed = self.climb(goal, begin, threat.local, Noise(x, generator))
        stochastic = isinstance(goal, Goal) and goal.stochastic
        goal = judged(goal) if isinstance(goal, Goal) else goal
        same = isinstance(climbed, Best) and begin is x and not stochastic
        known = climbed if same and isinstance(climbed, Best) else None
        found = climbed.x if isinstance(climbed, Best) else climbed.detach()
        if not self.compare:
            return threat.project(found, x)  # always: a check would wait for the GPU
        if not threat.contains(found, x).all():
            found, known = threat.project(found, x), None
        with torch.no_grad():  # values that are known are not computed again
            value = goal(found) if known is None else known.value
            start = goal(x) if known is None or known.at_start is None else known.at_start
        return torch.where(wide(value > start), found, x)

    def aims(self, goal: Goal) -> tuple[Goal, ...]:
        """What to climb for a goal: itself and, with gradients, its variants."""
        return (goal, *goal.variants) if self.uses_gradient else (goal,)

    def prepared(self, goal: AnyGoal, x: Images) -> AnyGoal:
        """The goal that is climbed: of a stochastic one the mean of several draws."""
        return in_expectation(goal) if isinstance(goal, Goal) and goal.stochastic else goal

    @abstractmethod
    def climb(self, goal: AnyGoal, x: Images, threat: Threat, noise: Noise) -> "Images | Best":
        """Search for a higher goal, starting from x. Override this one method.

        Returns images; or the `Best` that saw the goal of each, which saves two forward passes.
        """


def starting_points(
    goal: AnyGoal, x: Images, threat: Threat, noise: Noise, restarts: int, random_start: bool
) -> Iterator[Images]:
    """Where each restart begins: at the goal's own starts first, then at x or a random point."""
    given = goal.starts if isinstance(goal, Goal) else ()
    for restart in range(restarts):
        if restart < len(given):
            yield threat.project(given[restart], x)
        elif random_start or restart:
            yield threat.project(x + threat.sample(noise), x)
        else:
            yield x


def worst_origin(goal: AnyGoal, x: Images, threat: Threat) -> Images:
    """x, or for a threat that may move it first, the origin of the highest goal for each image."""
    origins = threat.origins(x)
    if len(origins) == 1:
        return x
    best = Best(x)
    with torch.no_grad():
        for origin in origins:
            best.offer(origin, goal(origin))
    return best.x


class Best:
    """The best image seen so far, for each image of the batch."""

    def __init__(self, x: Images) -> None:
        self._start = x
        self.x = x
        self.value = torch.full((len(x),), -torch.inf, dtype=x.dtype, device=x.device)
        self.at_start: Scores | None = None  # known once x itself was offered

    def offer(self, x: Images, value: Scores) -> None:
        """Keep x where its value is higher; NaN never is."""
        if x is self._start:
            self.at_start = value
        better = value > self.value
        self.x = torch.where(wide(better), x, self.x)
        self.value = torch.where(better, value, self.value)


def value_and_gradient(goal: AnyGoal, x: Images) -> tuple[Scores, Images]:
    """Per-image values and d(sum)/dx. Leaves no .grad behind on any parameter."""
    x = x.detach().requires_grad_()
    values = goal(x)
    gradient = None
    if values.requires_grad:  # if only by a parameter, autograd has not used x
        (gradient,) = torch.autograd.grad(values.sum(), x, allow_unused=True)
    if gradient is None:
        raise CapabilityError(
            "expected a goal with a gradient, got one that is cut off from the pixels: "
            "use an attack without gradients"
        )
    return values.detach(), gradient.nan_to_num(0, 0, 0)  # a NaN would stay in x for good


def own_backward_passes(values: Tensor) -> list[Any]:
    """The nodes of the graph whose backward pass is written in Python, other than rood's own."""
    found, seen, ahead = list[Any](), set[Any](), [values.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        ahead += [parent for parent, _ in node.next_functions]
        if isinstance(node, BackwardCFunction) and not is_of_rood(type(node)._forward_cls):
            found.append(node)
    return found


def is_of_rood(code: object) -> bool:
    """Whether a function or class is part of rood."""
    return str(getattr(code, "__module__", "")).startswith("rood.")


def at_least_one(**counts: int) -> None:
    """Refuse an attack that would do nothing."""
    if min(counts.values()) < 1:
        wanted = " and ".join(f"{name} >= 1" for name in counts)
        got = " and ".join(map(str, counts.values()))
        raise InputError(f"expected {wanted}, got {got}")


def check_keep(keep: Literal["best", "last"], restarts: int) -> None:
    """Refuse several restarts where only the last iterate is kept."""
    if keep == "last" and restarts > 1:
        raise InputError(f'expected one restart with keep="last", got {restarts}')


def _check_images(x: Images, *, values: bool) -> None:
    if x.ndim != 4 or not x.is_floating_point():
        got = f"{str(x.dtype).removeprefix('torch.')} of shape {tuple(x.shape)}"
        raise InputError(f"expected float images of shape (b, c, h, w), got {got}")
    if values and x.numel():
        low, high = (v.item() for v in torch.aminmax(x))
        if not (low >= 0 and high <= 1):
            raise InputError(f"expected pixels in [0, 1], got [{low:.3g}, {high:.3g}]")
