"""Images attacked through the very score that judges, by our own suite."""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch

from rood.attacks.apgd import APGD
from rood.attacks.base import Attack
from rood.attacks.worst_of import WorstOf
from rood.detectors.base import Detector
from rood.evaluation.attacked import attacked_scores
from rood.shapes import Images, Scores
from rood.threat import Threat
from rood_papers.framework.context import Context


def lowered(
    context: Context,
    detector: Detector,
    outside: Images,
    clean: Scores,  # of ID images
    threat: Threat,
    purpose: str,
) -> Images:
    """The first OOD images with a lower score; ID images are not attacked."""
    suite = WorstOf(tier="quick" if context.size.name == "tiny" else "standard")
    x = outside[: context.size.standard]
    draws = (purpose, "standard")
    return attacked_scores(
        detector, x, "outside", threat, suite, past=clean, seed=context.seed, purpose=draws
    ).images


def judged(
    context: Context,
    detector: Detector,
    inside: Images,
    outside: Mapping[str, Images],
    threat: Threat,
    purpose: Sequence[str],
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Scores before and after, by set, all OOD sets in one batch; "inside" is the ID side."""
    x_out = torch.cat(list(outside.values()))
    with torch.no_grad():
        clean_in, clean_out = detector.score(inside), detector.score(x_out)
    # a few steps at tiny: they show that everything runs
    suite: Attack = APGD(steps=3) if context.size.name == "tiny" else WorstOf()

    def attacked(x: Images, side: Literal["inside", "outside"], past: Scores) -> Scores:
        draws = ("standard", *purpose, side)
        return attacked_scores(
            detector, x, side, threat, suite, past=past, seed=context.seed, purpose=draws
        ).scores

    def by_set(s_in: Scores, s_out: Scores) -> dict[str, torch.Tensor]:
        parts = s_out.cpu().split([len(x) for x in outside.values()])
        return {"inside": s_in.cpu(), **dict(zip(outside, parts, strict=True))}

    found = attacked(inside, "inside", clean_out), attacked(x_out, "outside", clean_in)
    return by_set(clean_in, clean_out), by_set(*found)
