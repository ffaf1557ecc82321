"""Attack the images of one side through a detector's own score."""

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from rood.attacks.base import Attack
from rood.detectors.base import Detector
from rood.goals import look_in, look_out
from rood.seeds import generator
from rood.shapes import Images, Scores
from rood.threat import Threat


class Attacked(NamedTuple):
    """Attacked images and their scores, in the order of the clean images."""

    images: Images
    scores: Scores


def attacked_scores(
    detector: Detector,
    images: Images,
    side: Literal["inside", "outside"],
    threat: Threat,
    attack: Attack,
    *,
    past: Float[Tensor, " n"] | float | None = None,
    exemplars: Float[Tensor, "e c h w"] | None = None,
    seed: int = 0,
    purpose: tuple[str | int, ...] = (),
    batch_size: int = 1000,
) -> Attacked:
    """Make ID images look OOD, or OOD images look ID, and score what the attack found.

    `WorstOf` leaves an image alone whose score has passed every score in `past`, the clean scores
    of the other side: no ranking metric can change any more. Other attacks climb on. For an AUROC
    with both sides attacked, call this once per side and rank the two results.

    Parameters
    ----------
    detector
        A fitted detector. The attack climbs its own score, so it is adaptive.
    images
        Clean images in [0, 1], NCHW.
    side
        "inside" raises the score of ID images, "outside" lowers that of OOD images.
    threat, attack
        Where an image may go, and how it gets there.
    past
        Clean scores of the other side, or a single score; None: `WorstOf` stops at no image.
    exemplars
        ID images that OOD images may aim at, see `rood.goals.look_in`.
    seed, purpose
        Name the random draws. Each image has its own, whatever the batch size.
    batch_size
        Images attacked at once: changes speed, not scores.

    Returns
    -------
    Attacked
        `images` and their `scores`.

    Examples
    --------
    >>> import rood, torch
    >>> from rood.attacks import PGD
    >>> from rood.detectors import MSP
    >>> from rood.evaluation.attacked import attacked_scores
    >>> from rood.threat import Linf
    >>> msp = MSP(rood.zoo.load("digits-ce"))
    >>> x_out = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    >>> found = attacked_scores(msp, x_out, "outside", Linf(0.1), PGD(steps=5))
    >>> bool((found.scores <= msp.score(x_out)).all())
    True
    """
    if side == "inside":
        goal = look_out(detector, past=math.inf if past is None else past)
    else:
        goal = look_in(detector, exemplars, past=-math.inf if past is None else past)
    found = [attack(goal, x, threat, generator(seed, *purpose)) for x in images.split(batch_size)]
    with torch.no_grad():  # what the attack reports is not trusted: its images are scored again
        scores = [detector.score(x) for x in found]
    return Attacked(torch.cat(found), torch.cat(scores))
