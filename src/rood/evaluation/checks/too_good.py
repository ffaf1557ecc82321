"""Is the number too good to be true?"""

import math

from rood.evaluation.checks.base import Case, Check, Verdict, Wording


class TooGood(Check):
    """AUROC with both sides attacked, judged at L-infinity budgets of 8/255 or more only."""

    place = 15
    warn, fail = 0.80, math.inf
    wording = Wording(
        title="Too good to go unquestioned",
        because="so much robustness at this budget is rare",
        meaning="With both sides attacked at a large budget, the AUROC is still this high. Few "
        "detectors manage that; more often the attack was too weak.",
        advice="Attack again with more steps, restarts and a surrogate (worst_of) before you "
        "publish the number; then publish both.",
    )

    def evidence(self, case: Case) -> float | None:
        return case.aurocs[-1] if case.side == "both" else None

    def verdict(self, value: float, case: Case) -> Verdict:
        generous = case.norm == "linf" and case.eps >= 8 / 255 - 1e-9
        return super().verdict(value, case) if generous else "pass"
