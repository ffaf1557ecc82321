"""Does the attack beat random search?"""

from collections.abc import Sequence

import numpy as np

from rood.evaluation.checks.base import (
    NOTICEABLE,
    VERDICTS,
    AttackedSet,
    Faults,
    ShareCheck,
    Verdict,
    Wording,
    difference,
    typical,
)


class RandomSearchWins(ShareCheck):
    """Share of the control images on which the best of 50 random points moved the score further
    than the attack did.

    Where at least two images did, it also warns where their better points lower the AUROC of the
    control images by 0.02, and fails at 0.05. The number includes these points.
    """

    place = 6
    warn, fail = 0.02, 0.10
    wording = Wording(
        title="Random search wins",
        because="random search beat the attack",
        meaning="On this share of the images, random changes did better than the attack: the "
        "gradient is misleading (masked), and the attacked numbers are too high.",
        advice="Give the attack more steps and restarts, let it climb a surrogate, or use "
        "worst_of.",
        share=True,
    )

    def faults(self, attacked: AttackedSet) -> Sequence[Faults]:
        before = attacked.values("control_before")
        random, attack = (attacked.values(name) for name in ("control", "control_after"))
        # differences by rounding, or between two means over calls, are no win
        least = 1e-4 * typical(difference(attack, before)) + 3 * _noise(attacked)
        return [difference(random, attack) > least]

    def grade(self, attacked: AttackedSet) -> Verdict:
        (wins,) = self.faults(attacked)
        fall = attacked.fall("control_after", "control") if wins.sum() > 1 else 0.0
        effect: Verdict = "fail" if fall >= 0.05 else "warn" if fall >= NOTICEABLE else "pass"
        return max(super().grade(attacked), effect, key=VERDICTS.index)


def _noise(attacked: AttackedSet) -> float:
    """How far the scores of the same images differ between two batches, in the score's unit."""
    if "apart" not in attacked.arrays:
        return 0.0
    apart, together = (attacked.arrays[name] for name in ("apart", "control_before"))
    return typical(difference(apart, together).astype(np.float64))
