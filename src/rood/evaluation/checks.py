"""May an attacked number be believed? Findings about the evaluation, each a row of its own."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rood import metrics
from rood.evaluation.results import Verdict

Scores = NDArray[np.floating]  # as "values": turned so that the attacker wants them high

NEVER = math.inf

# above the first: warn; above the second: fail. docs/flags.md says why
LIMITS: dict[str, tuple[float, float]] = {
    "zero_gradient": (0.01, 0.10),
    "untrue_gradient": (0.25, 0.50),
    "random_search_wins": (0.02, 0.10),
    "left_the_threat_model": (0.0, 0.0),
    "two_calls_differ": (0.001, 0.05),
    "batch_matters": (0.001, 0.05),
    "transfer_beats_direct": (0.10, NEVER),
    "base_only": (0.10, 0.50),
    "lost_by_rounding": (0.10, NEVER),
    "more_steps_gain": (0.05, 0.15),
    "far_from_zero": (0.25, 0.40),
    "tied_scores": (0.02, 0.10),
    "rises_with_eps": (0.01, 0.05),
    "one_side_only": (0.0, NEVER),
    "too_good": (0.80, NEVER),
}


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
    return _graded("zero_gradient", float(np.mean(dead)))


def untrue_gradient(honesty: NDArray[np.floating]) -> Finding:
    """Share of images where the score, moved along its gradient, does not rise as that promises."""
    wrong = ~(np.abs(honesty - 1) <= 0.25)  # written so that NaN is wrong too
    return _graded("untrue_gradient", float(np.mean(wrong)))


def tied_scores(*groups: Scores) -> Finding:
    """Share of clean scores that another image of the same set has too: a saturated score."""
    shares = [1 - np.sum(np.unique(s, return_counts=True)[1] == 1) / len(s) for s in groups]
    return _graded("tied_scores", float(max(shares)))


def random_search_wins(gained_random: Scores, gained_attack: Scores) -> Finding:
    """Share of control images on which blind search moved the score further than the attack."""
    scale = np.abs(gained_attack).mean() + 1e-12
    share = float(np.mean(gained_random > gained_attack + 1e-4 * scale))
    return _graded("random_search_wins", share)


def left_the_threat_model(left: NDArray[np.uint8]) -> Finding:
    """Share of attacked images that, measured again, lie outside the budget or the pixel box."""
    return _graded("left_the_threat_model", float(np.mean(left)))


def two_calls_differ(first: Scores, second: Scores, clean: Scores) -> Finding:
    """How far the score of the same image moves from call to call, in units of the set's spread."""
    return _graded("two_calls_differ", _moved(first, second) / _spread(clean))


def batch_matters(alone: Scores, again: Scores, together: Scores, clean: Scores) -> Finding:
    """How far an image's score moves with the images around it, beyond what two calls differ."""
    moved = _moved(alone, together) - 2 * _moved(alone, again)
    return _graded("batch_matters", max(0.0, moved) / _spread(clean))


def transfer_beats_direct(gained_direct: Scores, gained: Scores) -> Finding:
    """Share of images that got a tenth of the mean gain further on another goal than on theirs."""
    share = np.mean(gained > gained_direct + 0.1 * np.abs(gained).mean() + 1e-12)
    return _graded("transfer_beats_direct", float(share))


def base_only(gained_direct: Scores, gained: Scores) -> Finding:
    """Share of images that owe nine tenths of their gain to another function than the score."""
    share = np.mean((gained > 0) & (gained_direct <= 0.1 * gained))
    return _graded("base_only", float(share))


def lost_by_rounding(values: Scores, rounded: Scores, other: Scores) -> Finding:
    """The rise of AUROC against the other side's clean values when images have 8 bits."""
    lost = _behind(rounded, other) - _behind(values, other)
    return _graded("lost_by_rounding", max(0.0, lost))


def more_steps_gain(values: Scores, more: Scores, other: Scores) -> Finding:
    """The fall of AUROC against the other side's values when the attack goes on as long again."""
    gain = _behind(values, other) - _behind(np.maximum(values, more), other)
    return _graded("more_steps_gain", max(0.0, gain))


def far_from_zero(far: Scores, start: Scores) -> Finding:
    """AUROC left when images of the other side move on without a limit; one half: not at all."""
    return _graded("far_from_zero", _behind(far, start))


def rises_with_eps(aurocs: Sequence[float]) -> Finding:
    """The largest rise of AUROC from one budget to the next: more room cannot hurt an attacker."""
    rise = max((b - a for a, b in pairwise(aurocs)), default=0.0)
    return _graded("rises_with_eps", max(0.0, rise))


def one_side_only(sides: Sequence[str]) -> Finding:
    """1 where nobody attacked both sides at once: the number is then a bound from above."""
    return _graded("one_side_only", float("both" not in sides))


def too_good(auroc_both: float, eps: float, norm: str) -> Finding:
    """AUROC where both sides have at least 8/255 and it stays above 0.80: suspect until proven."""
    generous = norm == "linf" and eps >= 8 / 255 - 1e-9
    found = _graded("too_good", auroc_both)
    return found if generous else replace(found, verdict="pass")


def _graded(name: str, value: float) -> Finding:
    warn, fail = LIMITS[name]
    verdict: Verdict = "fail" if value > fail else "warn" if value > warn else "pass"
    return Finding(name, value, verdict)


def _behind(values: Scores, other: Scores) -> float:
    """Share of pairs in which the other side is still ahead: the AUROC, whoever was attacked."""
    return float(metrics.auroc(inside=values, outside=other))


def _moved(a: Scores, b: Scores) -> float:
    """The mean distance; equal infinities are none."""
    apart = a != b
    return float(np.abs(np.subtract(a, b, where=apart, out=np.zeros(len(a)))).mean())


def _spread(clean: Scores) -> float:
    finite = clean[np.isfinite(clean)].astype(np.float64)
    return float(finite.std()) + 1e-6 * float(np.abs(finite).mean()) + 1e-12 if len(finite) else 1.0
