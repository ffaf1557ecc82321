"""Measurements on a few images of an attacked set that show whether the attack can be believed.

Only arrays; `checks` says what they mean. Cheap measurements use `CONTROLS` images of every attack,
expensive ones `FEW` of these, once for all budgets.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from rood.attacks.apgd import APGD
from rood.attacks.base import Attack, Goal, value_and_gradient
from rood.attacks.pgd import PGD
from rood.attacks.random_search import RandomSearch
from rood.detectors.base import Detector
from rood.errors import CapabilityError
from rood.shapes import Images, Scores
from rood.threat import L2, LEVELS, Linf, Threat, to_8_bit

CONTROLS = 32  # images, evenly spaced, on which the attack itself is examined
FEW = 8  # of these, for the expensive measurements
# finite-difference steps, in pixel values: over the first, the score of a large image may curve; at
# the last, that of a small one may be lost in rounding; a wrong gradient is wrong at all three
NUDGES = (1e-4, 2e-5, 4e-6)
QUERIES = 50  # of random search, per image
STEPS = 20  # to continue an attack that has no `steps`; at least 10 for the others
WITHOUT_LIMIT = APGD(steps=20, first_step=0.1)  # from an image of the other side, without a budget


@dataclass(frozen=True)
class Examination:
    """One attack, and what is needed to examine it."""

    detector: Detector
    goal: Goal
    attack: Attack
    threat: Threat
    draws: Callable[[str], Generator]  # for a purpose

    def gradient(self, x: Images, controls: Tensor) -> dict[str, Tensor]:
        """Where the gradient is zero; and `honesty`, finite-difference slope / autograd slope."""
        alive = {"zero_gradient": torch.zeros(len(x)).byte(), "honesty": torch.ones(len(controls))}
        if not self.attack.uses_gradient:
            return alive
        try:
            _, gradient = value_and_gradient(self.goal, x)
        except CapabilityError:  # one part of several; the others need no gradient
            return alive | {"zero_gradient": torch.ones(len(x)).byte()}
        dead = (gradient.flatten(1) == 0).all(dim=1)
        if len(controls) == 0:
            return {"zero_gradient": dead.byte(), "honesty": x.new_empty(0)}
        at, along = x[controls], L2(1.0).ascent(gradient[controls])
        promised = (gradient[controls] * along).flatten(1).sum(dim=1)
        true = torch.where(
            dead[controls], torch.ones_like(promised), self._kept(promised, at, along)
        )
        return {"zero_gradient": dead.byte(), "honesty": true}

    @torch.no_grad()
    def _kept(self, promised: Scores, at: Images, along: Images) -> Scores:
        """Finite-difference slope / autograd slope, at the step where it is nearest to 1."""
        kept = []
        for nudge in NUDGES:
            h = nudge * at[0].numel() ** 0.5
            measured = (self.goal(at + h * along) - self.goal(at - h * along)) / (2 * h)
            kept.append(measured / promised)
        ratios = torch.stack(kept)
        nearest = (ratios - 1).abs().nan_to_num(torch.inf).argmin(dim=0, keepdim=True)
        return ratios.gather(0, nearest).squeeze(0)

    def usual(self, x: Images, found: Images) -> dict[str, Tensor]:
        """Scores after random search, of 8-bit images, and rescored twice in another batch."""
        if len(x) == 0:
            return dict.fromkeys(("control", "rounded", "apart", "again"), x.new_empty(0))
        blind = RandomSearch(queries=QUERIES)(self.goal, x, self.threat, self.draws("control"))
        whole = (LEVELS * x).round() / LEVELS  # most images are 8-bit already
        with torch.no_grad():
            return {
                "control": self.detector.score(blind),
                "rounded": self.detector.score(to_8_bit(found, whole, self.threat)),
                "apart": self._apart(x),
                "again": self._apart(x),
            }

    def further(self, x: Images, found: Images, start: Images) -> dict[str, Tensor]:
        """Scores after more steps, and of images of the other side moved without a budget."""
        if len(x) == 0:
            return dict.fromkeys(("more", "far", "far_start"), x.new_empty(0))
        again = PGD(steps=max(10, getattr(self.attack, "steps", STEPS)))
        more = self._from(found, x, again, self.threat, "more")
        far = self._from(start, x, WITHOUT_LIMIT, Linf(1.0), "far")
        with torch.no_grad():
            return {
                "more": self.detector.score(more),
                "far": self.detector.score(far),
                "far_start": self.detector.score(start),
            }

    def _from(
        self, start: Images, x: Images, attack: Attack, threat: Threat, purpose: str
    ) -> Images:
        """The best image found from `start`, itself included; without a gradient by queries."""
        goal = replace(self.goal, starts=(start,), variants=(), aim=None, enough=math.inf)
        attack = attack if self.attack.uses_gradient else self.attack
        try:
            found = attack(goal, x, threat, self.draws(purpose))
        except CapabilityError:
            found = RandomSearch(queries=QUERIES)(goal, x, threat, self.draws(purpose))
        with torch.no_grad():
            better = goal(found) > goal(start)
        return torch.where(better.view(-1, 1, 1, 1), found, start)

    def _apart(self, x: Images) -> Scores:
        """Scores with every second image in one batch and the others in another."""
        scores = x.new_empty(len(x))
        for part in (slice(0, None, 2), slice(1, None, 2))[: len(x)]:
            scores[part] = self.detector.score(x[part])
        return scores
