"""How much work an attack is: the passes it takes, and what one of them costs."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rood.attacks.base import Attack, Goal
from rood.detectors.base import Detector
from rood.evaluation.probes import BLIND, QUERIES, WITHOUT_LIMIT, continued_by
from rood.shapes import Images, Scores
from rood.threat import Linf

FORWARD = 1 / 3  # of the work of a forward and backward pass
CALL = 8.0  # images that a pass could have had more for the time that any pass takes
AIMED = 15  # goals aimed at single images: of ten classes, the energy and exemplars
LITTLE = 10  # remaining scores of every image examined further, in gradients
ALONG = 12  # slopes at three points of the path of every control, in gradients


class Pace(NamedTuple):
    """What a gradient of n images takes: `call + n * image`, in seconds or any other unit."""

    call: float
    image: float

    def of(self, n: float) -> float:
        """A gradient of n images; none takes nothing."""
        return self.call + n * self.image if n > 0 else 0.0


class Counts(NamedTuple):
    """The images of a task: attacked, examined, and examined further."""

    attacked: float
    controls: float
    few: float


def usual(detector: Detector) -> Pace:
    """The pace that follows from the passes of one score, in forward passes of one image."""
    forwards, backwards = detector.cost()
    image = forwards + 2.0 * backwards + 2.0
    return Pace(CALL * image, image)


def work(images: int, *, gradient: bool) -> float:
    """One pass, in forward passes of one image."""
    return (images + CALL) * (1.0 if not gradient else 1 / FORWARD)


def of_attack(pace: Pace, attack: Attack, variants: int, n: Counts) -> float:
    """An attack on some images at one budget, the examination of the attack included."""
    further = passes(continued_by(attack), variants) + BLIND.queries * FORWARD
    return (
        passes(attack, variants) * pace.of(n.attacked)
        + (QUERIES * FORWARD + ALONG) * pace.of(n.controls)
        + (further + WITHOUT_LIMIT.steps + LITTLE) * pace.of(n.few)
    )


def passes(attack: Attack, variants: int) -> float:
    """Gradients per image that the attack takes of a goal, counted on one that costs nothing."""
    key = repr(attack), variants  # an attack of somebody's own may have no hash
    if key not in _counted:
        _counted[key] = _count(attack, variants)
    return _counted[key]


_counted: dict[tuple[str, int], float] = {}


def _count(attack: Attack, variants: int) -> float:
    count = 0.0

    def goal(x: Images) -> Scores:
        nonlocal count
        count += 1 if torch.is_grad_enabled() and x.requires_grad else FORWARD
        return x.sum(dim=(1, 2, 3))

    counted: Sequence[Goal] = [Goal(goal)] * max(variants, AIMED)
    whole = Goal(goal, variants=tuple(counted[:variants]), aim=lambda x: tuple(counted[:AIMED]))
    x: Tensor = torch.full((1, 1, 4, 4), 0.5)
    try:
        attack(whole, x, Linf(1e-3), torch.Generator().manual_seed(0))
    except Exception:  # one of somebody's own may need more than this goal: an estimate will do
        count = float(getattr(attack, "steps", 40) * getattr(attack, "restarts", 1))
    return math.ceil(count * len(attack.aims(whole)))  # the audit climbs each by itself
