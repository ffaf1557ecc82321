"""May an attacked number be believed? Findings about the evaluation, each a row of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rood.evaluation.results import Verdict

Scores = NDArray[np.floating]


@dataclass(frozen=True)
class Finding:
    """One check: the evidence as a number, and what it means for the verdict."""

    name: str
    value: float
    verdict: Verdict


def worst(findings: Sequence[Finding]) -> Verdict:
    """The verdict that all findings together allow."""
    order: tuple[Verdict, ...] = ("pass", "warn", "fail")
    return max((f.verdict for f in findings), key=order.index, default="pass")


def zero_gradient(dead: NDArray[np.uint8]) -> Finding:
    """Share of images at which the gradient of the score is exactly zero: nothing to climb."""
    return _graded("zero_gradient", float(np.mean(dead)), warn=0.01, fail=0.10)


def untrue_gradient(honesty: NDArray[np.floating]) -> Finding:
    """Share of images where the score, moved along its gradient, does not rise as that promises."""
    wrong = ~(np.abs(honesty - 1) <= 0.25)  # written so that NaN is wrong too
    return _graded("untrue_gradient", float(np.mean(wrong)), warn=0.25, fail=0.50)


def tied_scores(*groups: Scores) -> Finding:
    """Share of clean scores that another image of the same set has too: a saturated score."""
    shares = [1 - np.sum(np.unique(s, return_counts=True)[1] == 1) / len(s) for s in groups]
    return _graded("tied_scores", float(max(shares)), warn=0.02, fail=0.10)


def random_search_wins(gained_random: Scores, gained_attack: Scores) -> Finding:
    """Share of control images on which blind search moved the score further than the attack."""
    scale = np.abs(gained_attack).mean() + 1e-12
    share = float(np.mean(gained_random > gained_attack + 1e-4 * scale))
    return _graded("random_search_wins", share, warn=0.02, fail=0.10)


def left_the_threat_model(left: NDArray[np.uint8]) -> Finding:
    """Share of attacked images that, measured again, lie outside the budget or the pixel box."""
    return _graded("left_the_threat_model", float(np.mean(left)), warn=0.0, fail=0.0)


def rises_with_eps(aurocs: Sequence[float]) -> Finding:
    """The largest rise of AUROC from one budget to the next: more room cannot hurt an attacker."""
    rise = max((b - a for a, b in pairwise(aurocs)), default=0.0)
    return _graded("rises_with_eps", max(0.0, rise), warn=0.01, fail=0.05)


def one_side_only(sides: Sequence[str]) -> Finding:
    """1 where nobody attacked both sides at once: the number is then a bound from above."""
    return _graded("one_side_only", float("both" not in sides), warn=0.5, fail=2.0)


def too_good(auroc_both: float, eps: float, norm: str) -> Finding:
    """AUROC where both sides have at least 8/255 and it stays above 0.80: suspect until proven."""
    generous = norm == "linf" and eps >= 8 / 255 - 1e-9
    suspect = generous and auroc_both > 0.80
    return Finding("too_good", auroc_both, "warn" if suspect else "pass")


def _graded(name: str, value: float, *, warn: float, fail: float) -> Finding:
    verdict: Verdict = "fail" if value > fail else "warn" if value > warn else "pass"
    return Finding(name, value, verdict)
