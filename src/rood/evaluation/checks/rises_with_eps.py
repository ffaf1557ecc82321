"""Does the AUROC fall as eps grows?"""

from itertools import pairwise

from rood.evaluation.checks.base import Case, Check, Wording


class RisesWithEps(Check):
    """Largest rise of the AUROC from one eps to the next."""

    place = 18
    warn, fail = 0.01, 0.05
    wording = Wording(
        title="A larger budget helps the detector",
        because="the AUROC rises with eps",
        meaning="An attacker with a larger budget can always repeat the attack of a smaller one. "
        "An AUROC that rises with eps by this much means that the attack got lost on the way.",
        advice="Use more steps, more restarts, or steps that shrink (apgd).",
    )

    def evidence(self, case: Case) -> float:
        rise = max((b - a for a, b in pairwise(case.aurocs)), default=0.0)
        return max(0.0, rise)
