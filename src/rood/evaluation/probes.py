"""Measurements on a few images of an attacked set that show whether the attack can be believed.

Only arrays; `checks` says what they mean. Cheap measurements use `CONTROLS` images of every attack,
expensive ones `FEW` of these, once for all budgets.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.overrides import TorchFunctionMode

from rood.attacks.apgd import APGD
from rood.attacks.base import (
    Attack,
    Goal,
    is_of_rood,
    own_backward_passes,
    value_and_gradient,
)
from rood.attacks.random_search import RandomSearch
from rood.attacks.square import Square
from rood.attacks.worst_of import WorstOf
from rood.detectors.base import Detector
from rood.errors import CapabilityError
from rood.seeds import Noise
from rood.shapes import Images, Scores, wide
from rood.threat import L2, LEVELS, Linf, Threat, to_8_bit

CONTROLS = 32  # images, evenly spaced, on which the attack itself is examined
FEW = 8  # of these, for the expensive measurements
# finite-difference steps, in pixel values: over the first, the score of a large image may curve; at
# the last, that of a small one may be lost in rounding; a wrong gradient is wrong at all three
NUDGES = (1e-4, 2e-5, 4e-6)
STRIDES = (0.1, 0.025)  # of eps: steps of the size that attacks take
DRAWS = 16  # calls whose mean is the score of a detector that is declared stochastic
STEPS = 17  # on the way back from an attacked image
SHARES = (1.0, 0.5)  # of the pixels that go
ROUNDING = 1e-5  # of a score: less is no fall
QUERIES = 50  # of random search, per image
BLIND = Square(queries=200)  # continues from the attacked image without gradients
QUICK, STANDARD = WorstOf(tier="quick"), WorstOf(tier="standard")
WITHOUT_LIMIT = APGD(steps=20, first_step=0.1)  # from an image of the other side, without a budget
TIERS = ("", "quick", "standard", "full")  # of WorstOf; "" is any other attack


class Slopes(NamedTuple):
    """The gradient at some images, against the score itself; `done` images count as honest."""

    dead: Tensor  # whether the gradient is 0
    honesty: Scores  # finite-difference slope / autograd slope, over a tiny step
    stride: Scores  # the same over a step of an attack


class Examined(NamedTuple):
    """Measurements, and the images that were found with the scores of the same name."""

    arrays: dict[str, Tensor]
    images: dict[str, Images]


def tier(attack: Attack) -> int:
    """The place of an attack in `TIERS`."""
    return TIERS.index(attack.tier) if isinstance(attack, WorstOf) else 0


def continued_by(attack: Attack) -> Attack:
    """A longer attack, which shows whether this one had finished."""
    if not attack.uses_gradient:
        return attack
    return STANDARD if attack == QUICK else QUICK


@dataclass(frozen=True)
class Examination:
    """One attack, and what is needed to examine it."""

    detector: Detector
    goal: Goal
    attack: Attack
    threat: Threat
    draws: Callable[[str], Generator]  # for a purpose

    @torch.no_grad()
    def score(self, x: Images) -> Scores:
        """The score; its mean over several calls where the detector is declared stochastic."""
        calls = DRAWS if self.goal.stochastic else 1
        return torch.stack([self.detector.score(x) for _ in range(calls)]).mean(dim=0)

    def gradient(self, x: Images, found: Images, controls: Tensor) -> dict[str, Tensor]:
        """What the gradient is worth: at every x, and at controls on the way and at the end."""
        at_x = self._slopes(x, controls)
        start, end = x[controls], found[controls]
        every = torch.arange(len(controls), device=x.device)
        path = [self._slopes(place, every) for place in ((start + end) / 2, end)]
        path.insert(0, at_x._replace(dead=at_x.dead[controls]))
        own = Slopes(*(torch.stack(values, dim=1) for values in zip(*path, strict=True)))
        return {
            "zero_gradient": at_x.dead.byte(),
            "honesty": at_x.honesty,
            "path_dead": own.dead.byte(),
            "path_honesty": own.honesty,
            "path_stride": own.stride[:, :2],  # the last step of an attack may lead down
            "custom_backward": torch.full_like(every, self._has_custom_backward(x)).byte(),
        }

    def _slopes(self, x: Images, controls: Tensor) -> Slopes:
        """Where the gradient is 0; and at the controls, finite-difference / autograd slopes."""
        ones = x.new_ones(len(controls))
        alive = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        if len(x) == 0 or not self.attack.uses_gradient:
            return Slopes(alive, ones, ones)
        try:
            _, gradient = value_and_gradient(self.goal, x)
        except CapabilityError:  # one part of several; the others need no gradient
            return Slopes(~alive, ones, ones)
        dead = (gradient.flatten(1) == 0).all(dim=1)
        if len(controls) == 0 or self.goal.stochastic:  # two calls differ by more than two points
            return Slopes(dead, ones, ones)
        at, here = x[controls], gradient[controls]
        flat = dead[controls]
        return Slopes(
            dead,
            torch.where(flat, ones, self._kept(at, here)).nan_to_num(0, 0, 0),
            torch.where(flat, ones, self._stride(at, here)).nan_to_num(1, 0, 0),
        )

    @torch.no_grad()
    def _kept(self, at: Images, gradient: Images) -> Scores:
        """Finite-difference slope / autograd slope, at the step where it is nearest to 1."""
        along, kept = L2(1.0).ascent(gradient), []
        promised = (gradient * along).flatten(1).sum(dim=1)
        for nudge in NUDGES:
            h = nudge * at[0].numel() ** 0.5
            measured = (self.goal(at + h * along) - self.goal(at - h * along)) / (2 * h)
            kept.append(measured / promised)
        ratios = torch.stack(kept)
        nearest = (ratios - 1).abs().nan_to_num(torch.inf).argmin(dim=0, keepdim=True)
        return ratios.gather(0, nearest).squeeze(0)

    @torch.no_grad()
    def _stride(self, at: Images, gradient: Images) -> Scores:
        """The larger one for steps along the attack's own direction, within the pixel range."""
        along, here, kept = self.threat.ascent(gradient), self.goal(at), []
        for stride in STRIDES:
            there = (at + stride * self.threat.eps * along).clamp(0, 1)
            promised = (gradient * (there - at)).flatten(1).sum(dim=1)
            kept.append((self.goal(there) - here) / promised)
        return torch.stack(kept).amax(dim=0)

    @torch.no_grad()
    def way_back(self, x: Images, found: Images) -> dict[str, Tensor]:
        """How much of a fall the goal regains as pixels move from the attacked image towards x and
        past it, at the same speed: all of them, or a random half.
        """
        regained = x.new_zeros(len(x), len(SHARES))
        if len(x) == 0 or self.goal.stochastic:
            return {"regained": regained}
        source = self.draws("way back")
        noise = Noise(x, source)
        # uneven steps: even ones would miss a period of their length
        places = (torch.arange(STEPS) + torch.rand(STEPS, generator=source)) / STEPS
        towards = torch.where(found == x, 0.5 - x, x - found).sign()
        gain = self.goal(found) - self.goal(x)
        for line, share in enumerate(SHARES):
            along = self.threat.eps * self.threat.ascent(towards) * (noise.uniform() < share)
            points = (self.threat.project(found + t * along, x) for t in (0, *places.tolist()))
            values = torch.stack(list(map(self.goal, points)), dim=1)
            regained[:, line] = recovery(values, gain)
        return {"regained": regained}

    def _has_custom_backward(self, x: Images) -> bool:
        """Whether a backward pass of somebody's own is part of the score's gradient."""
        watch = _Hooks()
        with torch.enable_grad(), watch:
            values = self.goal(x[:2].detach().requires_grad_())
        return watch.registered or bool(own_backward_passes(values))

    def usual(self, x: Images) -> "Examined":
        """Scores after random search, and rescored twice in another batch."""
        if len(x) == 0:
            return Examined(dict.fromkeys(("control", "apart", "again"), x.new_empty(0)), {})
        blind = RandomSearch(queries=QUERIES)(self.goal, x, self.threat, self.draws("control"))
        scores = {"control": self.score(blind), "apart": self._apart(x), "again": self._apart(x)}
        return Examined(scores, {"control": blind})

    def further(self, x: Images, found: Images, start: Images) -> "Examined":
        """Scores after the attack's result was attacked again, with and without gradients, and of
        images of the other side moved without a budget.
        """
        if len(x) == 0:
            names = ("more", "blind", "far", "far_start", "more_tier")
            return Examined(dict.fromkeys(names, x.new_empty(0)), {})
        stronger = continued_by(self.attack)
        images = {
            "more": self._from(found, x, stronger, self.threat, "more"),
            "blind": self._from(found, x, BLIND, self.threat, "blind"),
        }
        far = self._from(start, x, WITHOUT_LIMIT, Linf(1.0), "far")
        scores = {k: self.score(v) for k, v in (images | {"far": far, "far_start": start}).items()}
        return Examined(scores | {"more_tier": torch.full((len(x),), tier(stronger))}, images)

    def rounded(self, x: Images, found: Images) -> "Examined":
        """Scores of the images in 8 bits."""
        whole = (LEVELS * x).round() / LEVELS  # most images are 8-bit already
        images = to_8_bit(found, whole, self.threat)
        return Examined({"rounded": self.score(images)}, {"rounded": images})

    def _from(
        self, start: Images, x: Images, attack: Attack, threat: Threat, purpose: str
    ) -> Images:
        """The best image found from `start`, itself included; without a gradient by queries."""
        goal = replace(self.goal, starts=(start,), enough=math.inf)
        if not isinstance(attack, WorstOf):
            goal = replace(goal, variants=(), aim=None)
        if attack.uses_gradient and not self.attack.uses_gradient:
            attack = self.attack
        try:
            found = attack(goal, x, threat, self.draws(purpose))
        except CapabilityError:
            found = RandomSearch(queries=QUERIES)(goal, x, threat, self.draws(purpose))
        with torch.no_grad():
            better = goal(found) > goal(start)
        return torch.where(wide(better), found, start)

    def _apart(self, x: Images) -> Scores:
        """Scores with every second image in one batch and the others in another."""
        scores = x.new_empty(len(x))
        for part in (slice(0, None, 2), slice(1, None, 2))[: len(x)]:
            scores[part] = self.score(x[part])
        return scores


def recovery(values: Float[Tensor, "b n"], least: Scores) -> Scores:
    """The largest share of a fall from the first value that a row regains later.

    Falls of less than `least` count as that large, and so do those by rounding.
    """
    values = values.double()
    first = values[:, :1]
    lowest = values.cummin(dim=1).values
    fall = torch.maximum(first - lowest, least.double()[:, None])
    fall = torch.maximum(fall, ROUNDING * first.abs())
    share = (torch.minimum(values, first) - lowest) / fall
    return share.nan_to_num(0, 0, 0).amax(dim=1).to(least)


class _Hooks(TorchFunctionMode):
    """Sees whether code that is not rood's registers a hook on a tensor."""

    registered = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == "register_hook":
            self.registered |= not is_of_rood(args[1])
        return func(*args, **(kwargs or {}))
