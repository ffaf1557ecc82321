"""Images attacked through the very score that judges, by our own suite."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from rood.attacks.apgd import APGD
from rood.attacks.base import Attack
from rood.attacks.worst_of import WorstOf
from rood.detectors.base import Detector
from rood.goals import look_in, look_out
from rood.shapes import Images, Scores
from rood.threat import Threat
from rood_papers.framework.context import Context


def lowered(
    context: Context,
    detector: Detector,
    outside: Images,
    clean: Scores,  # of in-distribution images
    threat: Threat,
    purpose: str,
) -> Images:
    """Some OOD images with a lower score; in-distribution images are left alone."""
    x = outside[: context.size.standard]
    # an image below every clean one of the other side cannot change a rank any more
    goal = replace(look_in(detector), enough=-clean.min().item())
    suite = WorstOf(tier="quick" if context.size.name == "tiny" else "standard")
    return suite(goal, x, threat, context.generator(purpose, "standard"))


def judged(
    context: Context,
    detector: Detector,
    inside: Images,
    outside: Mapping[str, Images],
    threat: Threat,
    purpose: Sequence[str],
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Scores before and after, by set; "inside" is the in-distribution side.

    All OOD sets are attacked in one batch. An image that has passed every clean image of the
    other side is left alone: nothing it could still do changes a rank.
    """
    names = [n for n, x in outside.items() for _ in range(len(x))]
    x_out = torch.cat(list(outside.values()))
    with torch.no_grad():
        s_in, s_out = detector.score(inside), detector.score(x_out)
    # at tiny a few steps show that everything runs, and no more
    suite: Attack = APGD(steps=3) if context.size.name == "tiny" else WorstOf()
    draws = lambda side: context.generator("standard", *purpose, side)
    goal_in = replace(look_out(detector), enough=s_out.max().item())
    goal_out = replace(look_in(detector), enough=-s_in.min().item())
    found_in = suite(goal_in, inside, threat, draws("inside"))
    found_out = suite(goal_out, x_out, threat, draws("outside"))
    with torch.no_grad():
        t_in, t_out = detector.score(found_in), detector.score(found_out)

    def by_set(first: torch.Tensor, rest: torch.Tensor) -> dict[str, torch.Tensor]:
        values = rest.cpu()
        of = lambda name: torch.tensor([n == name for n in names])
        return {"inside": first.cpu()} | {n: values[of(n)] for n in outside}

    return by_set(s_in, s_out), by_set(t_in, t_out)
