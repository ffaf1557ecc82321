"""Is the gradient somebody's own?"""

import math

from rood.evaluation.checks.base import AttackedSet, SetCheck, Verdict, Wording
from rood.evaluation.checks.rough_score import RoughScore
from rood.evaluation.checks.untrue_gradient import UntrueGradient
from rood.evaluation.checks.zero_gradient import ZeroGradient

GRADIENT = (ZeroGradient(), UntrueGradient(), RoughScore())


class CustomBackward(SetCheck):
    """1 where the gradient passes through a `torch.autograd.Function` or a hook that is neither
    torch's nor rood's, else 0.

    By itself that is no fault. It is a warning where another check of the gradient fires too
    (`zero_gradient`, `untrue_gradient`, `rough_score`), and says where to look.
    """

    place = 5
    warn, fail = 0.0, math.inf
    needs = "custom_backward"
    wording = Wording(
        title="A custom backward pass",
        because="a custom backward pass changes the gradient",
        meaning="A part of the score computes its own gradient, and the gradient does not fit the "
        "score. What lies behind that part was perhaps never attacked.",
        advice="Replace the part by one whose gradient is true or straight-through, or attack "
        "without gradients.",
    )

    def measure(self, attacked: AttackedSet) -> float:
        return float(attacked.arrays["custom_backward"].max(initial=0))

    def grade(self, attacked: AttackedSet) -> Verdict:
        doubtful = any(check.grade(attacked) != "pass" for check in GRADIENT)
        return self.limited(self.measure(attacked)) if doubtful else "pass"
