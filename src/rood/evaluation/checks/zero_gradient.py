"""Is there a gradient to follow?"""

import numpy as np

from rood.evaluation.checks.base import AttackedSet, SetCheck, Wording


class ZeroGradient(SetCheck):
    """Share of the images at which the gradient of the score is exactly 0."""

    place = 1
    warn, fail = 0.01, 0.10
    wording = Wording(
        title="No gradient to follow",
        because="the gradient is zero for many images",
        meaning="For this share of the images, small changes of the pixels do not change the "
        "score, so a gradient attack cannot move: the score is saturated, clipped or rounded, or "
        "its graph is cut. That hides a weakness; it does not remove it. A score without any "
        "gradient is attacked by Square and random search instead.",
        advice="Use the detector in its unsaturated form (a margin of logits) or give it a "
        "surrogate to attack, and add an attack that needs no gradient (random_search).",
        share=True,
    )

    def measure(self, attacked: AttackedSet) -> float:
        return float(np.mean(attacked.arrays["zero_gradient"]))
