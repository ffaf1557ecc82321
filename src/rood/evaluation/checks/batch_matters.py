"""Does the score depend on the batch?"""

from rood.evaluation.checks.base import AttackedSet, SetCheck, Wording


class BatchMatters(SetCheck):
    """Mean distance between the score of an image in its batch and in a batch of other control
    images, in standard deviations of the set's clean scores, less what two calls differ.
    """

    place = 11
    warn, fail = 0.001, 0.05
    needs = "again"
    wording = Wording(
        title="The batch matters",
        because="an image's score depends on the other images of its batch",
        meaning="In another batch, the score of an image moves by this much of the spread of all "
        "scores. The numbers then hold for these batches only, and an attacker may choose the "
        "batch too.",
        advice="Put the network in eval mode and keep batch statistics out of the score.",
    )

    def measure(self, attacked: AttackedSet) -> float:
        apart, again, together = (
            attacked.arrays[name] for name in ("apart", "again", "control_before")
        )
        return max(0.0, attacked.moved(apart, together) - 2 * attacked.moved(apart, again))
