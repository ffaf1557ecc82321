"""Do the attacked images lie in the threat model?"""

import numpy as np

from rood.evaluation.checks.base import AttackedSet, SetCheck, Wording


class LeftTheThreatModel(SetCheck):
    """Share of the attacked images, measured again as saved, that lie outside the budget or the
    pixel range.
    """

    place = 8
    warn, fail = 0.0, 0.0
    wording = Wording(
        title="Left the threat model",
        because="the attacked images left the allowed budget",
        meaning="This share of the attacked images lies outside the stated budget or outside the "
        "pixel range [0, 1]. The number does not belong to the stated attacker.",
        advice="Project every result before it is scored; read a trajectory as an analysis, not "
        "as an attack.",
        share=True,
    )

    def measure(self, attacked: AttackedSet) -> float:
        return float(np.mean(attacked.arrays["left"]))
