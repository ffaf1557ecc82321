"""Does the attack survive 8-bit images?"""

import math

from rood.evaluation.checks.base import AttackedSet, SetCheck, Wording, auroc_left


class LostByRounding(SetCheck):
    """Rise of the AUROC of the control images, against the clean images of the other side, when
    they are rounded to 8 bits within the budget.

    At the edge of the budget, pixels are rounded towards the clean image. Images that do not
    come in whole levels are rounded first.
    """

    place = 14
    warn, fail = 0.10, math.inf
    needs = "again"
    wording = Wording(
        title="Lost in 8-bit images",
        because="part of its success is lost when images are stored with 8 bits",
        meaning="Rounded to whole levels of 1/255 within the budget, the attacked images give "
        "the detector this much of its AUROC back: the number holds for an attacker who sends "
        "float numbers.",
        advice="Choose an eps of whole levels (n/255), or say that inputs are not 8-bit images.",
    )

    def measure(self, attacked: AttackedSet) -> float:
        clean = attacked.up(attacked.other.get("before", attacked.other["scores"]))
        rounded, after = (
            auroc_left(attacked.values(*names), clean)
            for names in (("rounded",), ("control_best", "control_after"))
        )
        return max(0.0, rounded - after)
