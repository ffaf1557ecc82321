"""Were both sides attacked?"""

import math

from rood.evaluation.checks.base import Case, Check, Wording


class OneSideOnly(Check):
    """1 where no row has both sides attacked, else 0."""

    place = 19
    warn, fail = 0.0, math.inf
    wording = Wording(
        title="Only one side was attacked",
        because="only one side was attacked",
        meaning="Only OOD images were made to look ID, or only ID images to look OOD. An "
        "attacker may do both; the AUROC with both sides attacked can only be lower.",
        advice="Attack both sides, or say beside the number which side was attacked.",
    )

    def evidence(self, case: Case) -> float:
        return float("both" not in case.sides)
