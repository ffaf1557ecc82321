"""Attacked images to look at, save or train on, for one detector."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch

from rood.attacks.base import Attack, Best, Goal
from rood.attacks.worst_of import WorstOf
from rood.detectors.base import Detector
from rood.goals import look_in, look_out
from rood.registry import unknown
from rood.seeds import generator
from rood.shapes import Images, Scores
from rood.threat import Threat, to_8_bit

Direction = Literal["look_in", "look_out"]
GOALS: dict[str, Callable[[Detector], Goal]] = {"look_in": look_in, "look_out": look_out}


class Crafted(NamedTuple):
    """Attacked images, and the scores of what they were made of and of themselves."""

    images: Images
    before: Scores
    after: Scores  # of what the attack found, before it was rounded
    rounded: Scores  # of `images`; the same as `after` where nothing was rounded


def craft(
    detector: Detector,  # fitted
    images: Images,
    threat: Threat,
    *,
    direction: Direction = "look_in",
    attack: Attack | None = None,  # None: WorstOf()
    seed: int = 0,
    eight_bit: bool = False,  # round to n/255, as image files do, without leaving the threat
) -> Crafted:
    """Move each image to where the detector takes it for in (or out); never worse than it was."""
    if direction not in GOALS:
        raise unknown("direction", direction, GOALS)
    goal, attack, x = GOALS[direction](detector), attack or WorstOf(), images.detach()
    sign = -1 if direction == "look_in" else 1
    with torch.no_grad():
        before = sign * detector.score(x)
        best, kept = Best(x), Best(x)
        for candidates in (best, kept):
            candidates.offer(x, before)
        for i, aim in enumerate(attack.aims(goal)):
            # a fresh generator a batch: each image's noise depends on its pixels, not on its batch
            found = attack(aim, x, threat, generator(seed, "craft", direction, str(threat), i))
            best.offer(found, goal(found))
        final = to_8_bit(best.x, x, threat) if eight_bit else best.x
        kept.offer(final, goal(final))
    return Crafted(kept.x, sign * before, sign * best.value, sign * kept.value)
