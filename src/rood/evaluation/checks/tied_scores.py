"""Do images share their scores?"""

import numpy as np

from rood.evaluation.checks.base import Case, Check, Wording


class TiedScores(Check):
    """Share of the clean scores that another image of the same set has too."""

    place = 12
    warn, fail = 0.02, 0.10
    wording = Wording(
        title="Tied scores",
        because="many scores are equal",
        meaning="This share of the images has exactly the score of another image: the score is "
        "saturated or quantised, so rankings and gradients say less than they seem to.",
        advice="Report the score before it is squashed (a logit margin, not a probability), in "
        "float32 or better.",
        share=True,
    )

    def evidence(self, case: Case) -> float:
        shares = [1 - np.sum(np.unique(s, return_counts=True)[1] == 1) / len(s) for s in case.clean]
        return float(max(shares))
