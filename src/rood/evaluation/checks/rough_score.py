"""Does the gradient hold over a step of the attack?"""

from collections.abc import Sequence

import numpy as np

from rood.evaluation.checks.base import AttackedSet, Faults, ShareCheck, Wording


class RoughScore(ShareCheck):
    """Share of the control images at which neither a step of eps / 10 nor one of eps / 40 in the
    attack's own direction changes the score by a tenth of what the gradient predicts, at the clean
    image and half way to the attacked one.

    The gradient may be exact and still belong to ripples that are far smaller than the budget. On
    smooth scores the ratio is 0.5 to 1.1, on a ripple 0.001; a score with many kinks (KNN) is below
    a tenth on some images. At a peak, where a step leads down, so is any score; therefore both
    places count.
    """

    place = 3
    warn, fail = 0.15, 0.25
    needs = "path_stride"
    wording = Wording(
        title="The score is rough",
        because="the gradient holds for tiny steps only",
        meaning="On this share of the examined images, steps of a tenth and a fortieth of the "
        "budget gain less than a tenth of what the gradient predicts: it follows ripples or "
        "noise, and an attack that climbs them sees nothing of the slope.",
        advice="Look for a rapidly changing term in the network or the score; climb a surrogate "
        "without it, or the gradient averaged over points around the image (worst_of).",
        share=True,
    )

    def faults(self, attacked: AttackedSet) -> Sequence[Faults]:
        rough: Faults = np.all(attacked.arrays["path_stride"] < 0.1, axis=1)
        return [rough]
