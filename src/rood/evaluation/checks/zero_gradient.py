"""Is there a gradient to follow?"""

from collections.abc import Sequence

from rood.evaluation.checks.base import AttackedSet, Faults, ShareCheck, Wording


class ZeroGradient(ShareCheck):
    """Share of the images at which the gradient of the score is exactly 0, at the clean image, half
    way to the attacked one or there, whichever is worst.

    Half way and at the end it is the share of the control images whose score has not risen for the
    attacker: a climb may well end on a plateau.
    """

    place = 1
    warn, fail = 0.05, 0.10
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

    def faults(self, attacked: AttackedSet) -> Sequence[Faults]:
        start, *others = (
            place.astype(bool)
            for place in (attacked.arrays["zero_gradient"], *attacked.on_the_way("path_dead"))
        )
        return [start, *(dead & attacked.stuck() for dead in others)]
