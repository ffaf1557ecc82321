"""Do images share their scores?"""

import numpy as np

from rood.evaluation.checks.base import (
    VERDICTS,
    Case,
    Check,
    Faults,
    Scores,
    Verdict,
    Wording,
    exceeds,
)


class TiedScores(Check):
    """Share of the clean scores that another image of the same set has too."""

    place = 17
    warn, fail = 0.02, 0.10
    tested = True
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
        return max(float(tied.mean()) for tied in map(_tied, case.clean))

    def verdict(self, value: float, case: Case) -> Verdict:
        grades = [self.limited(tied, exceeds) for tied in map(_tied, case.clean)]
        return max(grades, key=VERDICTS.index)


def _tied(scores: Scores) -> Faults:
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    return counts[place] > 1
