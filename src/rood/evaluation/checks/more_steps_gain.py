"""Had the attack finished?"""

import numpy as np

from rood.evaluation.checks.base import AttackedSet, SetCheck, Wording, auroc_left


class MoreStepsGain(SetCheck):
    """Fall of the AUROC of 8 control images, against the other side as the row has it, when the
    attack continues from its own result for as many steps again (at least 10).

    Only rows of the largest eps have it. A score that still moves where the AUROC is already 0
    does not count.
    """

    place = 10
    warn, fail = 0.05, 0.15
    needs = "more"
    wording = Wording(
        title="More steps still gain",
        because="the attack had not finished",
        meaning="Continued for as many steps again from where it ended, the attack takes away "
        "this much more of the AUROC: it was stopped too early, and the attacked numbers are too "
        "high.",
        advice="Use more steps and restarts until this no longer moves, or worst_of.",
    )

    def measure(self, attacked: AttackedSet) -> float:
        other = attacked.up(attacked.other["scores"])
        after, more = attacked.values("few_after"), attacked.values("more")
        gain = auroc_left(after, other) - auroc_left(np.maximum(after, more), other)
        return max(0.0, gain)
