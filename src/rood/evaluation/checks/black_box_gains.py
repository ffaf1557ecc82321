"""Do queries without gradients lead further?"""

from rood.evaluation.checks.base import AttackedSet, SetCheck, Wording


class BlackBoxGains(SetCheck):
    """Fall of the AUROC of 8 control images, against the other side as the row has it, when Square
    continues from the attack's own result with 200 queries and no gradient.

    Only rows of the largest eps have it. The number includes the points found.
    """

    place = 7
    warn, fail = 0.05, 0.15
    needs = "blind"
    wording = Wording(
        title="Queries without gradients still gain",
        because="an attack without gradients went further",
        meaning="Continued without gradients from where it ended, the attack takes away this much "
        "more of the AUROC: gradients did not lead to the weakness, and the attacked numbers are "
        "too high.",
        advice="Use worst_of, or add an attack by queries (square) with more queries.",
    )

    def measure(self, attacked: AttackedSet) -> float:
        return attacked.fall("few_after", "blind")
