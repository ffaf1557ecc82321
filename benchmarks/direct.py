"""The attack on a score itself, budget by budget and at last without any limit."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from rood.analysis.matching import BATCH
from rood.attacks import PGD, WorstOf
from rood.attacks.base import Attack, Goal
from rood.attacks.worst_of import Tier
from rood.detectors.base import Detector
from rood.goals import look_in
from rood.metrics import auroc
from rood.seeds import generator
from rood.shapes import Images, Scores
from rood.threat import L2

# the steps of `worst_of` grow with the ball, and miss valleys that are narrow
WALK = PGD(steps=100, step=0.3, random_start=False)


@torch.no_grad()
def scores(detector: Detector, x: Images) -> Scores:
    return torch.cat([detector.score(part) for part in x.split(BATCH)])


def against(detector: Detector, inside: Images, outside: Images) -> float:
    return auroc(inside=scores(detector, inside), outside=scores(detector, outside))


def without_limit(x: Images) -> L2:
    """The diagonal of the pixel box: no image is further from another."""
    return L2(math.sqrt(x[0].numel()))


def lowest(detector: Detector, found: Sequence[Images]) -> Images:
    """Of several images for each start, the one that is taken for inside most."""
    best = torch.stack([scores(detector, x) for x in found]).argmin(dim=0)
    return torch.stack([*found])[best, torch.arange(len(best), device=best.device)]


@torch.no_grad()
def toward(detector: Detector, inside: Images, begin: Images, threat: L2) -> list[Images]:
    """As near as the ball lets each start come to its nearest image from inside, and to the one
    from inside that the score likes best: where the way there leads over ridges, a climb does not
    find it."""
    nearest = torch.cdist(begin.flatten(1), inside.flatten(1)).argmin(dim=1)
    typical = scores(detector, inside).argmin()
    return [threat.project(inside[i], begin) for i in (nearest, typical.expand_as(nearest))]


def climbed(goal: Goal, x: Images, threat: L2, attack: Attack) -> Images:
    """An attack batch by batch; the goal's starts, where it has any, are one for each of x."""
    parts = torch.arange(len(x), device=x.device).split(BATCH)
    source = lambda: generator(0, "direct")
    return torch.cat([attack(goal.take(i), x[i], threat, source()) for i in parts])


def reached(
    detector: Detector,
    inside: Images,
    begin: Images,
    budgets: Sequence[L2],  # from small to large
    known: Sequence[Sequence[Images]],  # images already found within each of them
    tier: Tier,
) -> Iterator[Images]:
    """The lowest scores found within each budget: what a smaller one had is never lost."""
    least = scores(detector, inside).min().item()
    # an image below every one from inside cannot change a rank any more
    goal = replace(look_in(detector, inside), enough=-least)
    best = begin
    for threat, others in zip(budgets, known, strict=True):
        best = lowest(detector, [best, *others, *toward(detector, inside, begin, threat)])
        for attack in (WorstOf(tier=tier), WALK):
            left = (scores(detector, best) >= least).nonzero().squeeze(1)
            if len(left):
                on = goal.begin(best[left]) if attack is WALK else goal
                found = [best[left], climbed(on, begin[left], threat, attack)]
                best = best.index_copy(0, left, lowest(detector, found))
        yield best
