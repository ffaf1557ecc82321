"""Had the attack finished?"""

from rood.evaluation.checks.base import AttackedSet, SetCheck, Wording


class MoreStepsGain(SetCheck):
    """Fall of the AUROC of 8 control images, against the other side as the row has it, when
    `WorstOf` continues from the attack's own result: tier quick, or standard after quick itself.

    Only rows of the largest eps have it. A score that still moves where the AUROC is already 0
    does not count. The number includes the points found.
    """

    place = 15
    warn, fail = 0.05, 0.15
    needs = "more"
    wording = Wording(
        title="More steps still gain",
        because="the attack had not finished",
        meaning="Continued by a longer attack from where it ended, the attack takes away this much "
        "more of the AUROC: it was too weak or stopped too early, and the attacked numbers are "
        "too high.",
        advice="Use more steps and restarts until this no longer moves, or worst_of.",
    )

    def measure(self, attacked: AttackedSet) -> float:
        return attacked.fall("few_after", "more")
