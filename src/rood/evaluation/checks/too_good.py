"""Is the number too good to be true?"""

import math

from rood.evaluation.checks.base import Case, Check, Verdict, Wording


class TooGood(Check):
    """AUROC with both sides attacked, judged at L-infinity budgets of 8/255 or more only.

    It passes where the evidence clears it: the attack is `WorstOf` of the tier standard or full, or
    of the tier quick and standard continued it on the 8 images; and at the largest eps neither
    random search, nor Square, nor the further attack of `more_steps_gain` lowers the AUROC of the
    examined images by 0.02. So it does where a certificate proves an AUROC within 0.05 of it.
    """

    place = 20
    warn, fail = 0.80, math.inf
    wording = Wording(
        title="Too good to go unquestioned",
        because="so much robustness at this budget is rare",
        meaning="With both sides attacked at a large budget, the AUROC is still this high. Few "
        "detectors manage that; more often the attack was too weak.",
        advice="Attack again with worst_of (tier standard) before you publish the number: where "
        "neither that nor queries without gradients get lower, the flag passes.",
    )

    def evidence(self, case: Case) -> float | None:
        return case.aurocs[-1] if case.side == "both" else None

    def verdict(self, value: float, case: Case) -> Verdict:
        small = case.norm != "linf" or case.eps < 8 / 255 - 1e-9
        proved = case.certified is not None and value - case.certified <= 0.05
        return "pass" if small or proved or case.unbeaten() else super().verdict(value, case)
