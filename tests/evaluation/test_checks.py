"""Every finding fires on the fault it is for, and stays quiet on honest work."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from toy_audit import audited, toy_case

from rood.attacks import PGD
from rood.detectors import MSP
from rood.detectors.base import OutputDetector
from rood.evaluation import checks
from rood.numerics.softmax import margin
from rood.threat import Linf


@pytest.fixture(scope="module")
def case():
    case = toy_case()
    case.outside = {"grey": case.outside["grey"]}
    return case


class Probability(OutputDetector):
    """What papers print: it is 0 to all digits for most images."""

    def score_outputs(self, out):
        return 1 - (100 * out.logits).softmax(dim=1).amax(dim=1)


class Rounded(OutputDetector):
    """Its steps are so fine that scores hardly tie, but between them nothing can be climbed."""

    def score_outputs(self, out):
        return (1e5 * margin(out.logits)).round() / 1e5


class Misleading(OutputDetector):
    """The right score with a gradient that points away."""

    def score_outputs(self, out):
        s = margin(out.logits)
        return 2 * s.detach() - s


@dataclass(frozen=True, kw_only=True)
class Timid(PGD):
    """Gives up where there is most room."""

    def climb(self, goal, x, threat, noise):
        return x if threat.eps > 0.06 else super().climb(goal, x, threat, noise)


@dataclass(frozen=True)
class Leaky(Linf):
    """Lets an attack go twice as far as it says."""

    def shrink(self, delta):
        return delta.clamp(-2 * self.eps, 2 * self.eps)


def verdicts(results, side="both"):
    """The worst verdict of every finding, over all budgets."""
    rows = [r for r in results.rows if r.metric.startswith("flag_") and r.side == side]
    order = ("pass", "warn", "fail")
    found = {}
    for row in rows:
        name = row.metric.removeprefix("flag_")
        found[name] = max(found.get(name, "pass"), row.verdict, key=order.index)
    return found


def attacked(case, out, detector, **changes):
    usual = {"detectors": {"d": detector}, "threats": [Linf(0.05)]}
    return audited(case, out, **(usual | changes))


def test_honest_work_raises_nothing(case, tmp_path):
    budgets = {"threats": [Linf(0.05), Linf(0.07)], "attack": PGD(steps=20)}
    results = attacked(case, tmp_path, MSP(case.model), **budgets)
    assert set(verdicts(results).values()) == {"pass"}
    assert {r.verdict for r in results.find(metric="auroc", side="both")} == {"pass"}


def test_a_saturated_probability_is_found(case, tmp_path):
    results = attacked(case, tmp_path, Probability(case.model))
    found = verdicts(results)
    assert found["tied_scores"] == "fail"
    assert found["zero_gradient"] == "fail"
    assert {r.verdict for r in results.find(metric="auroc", side="both")} == {"fail"}


def test_a_gradient_of_nothing_is_found(case, tmp_path):
    found = verdicts(attacked(case, tmp_path, Rounded(case.model)))
    assert found["zero_gradient"] == "fail"
    assert found["tied_scores"] == "pass"


def test_a_misleading_gradient_is_found_by_random_search(case, tmp_path):
    results = attacked(case, tmp_path, Misleading(case.model))
    found = verdicts(results)
    assert found["random_search_wins"] == "fail"
    assert found["zero_gradient"] == "pass"
    assert results.find(metric="auroc", side="both")[0].verdict == "fail"


def test_an_attack_that_gets_lost_with_more_room_is_found(case, tmp_path):
    threats = [Linf(0.05), Linf(0.07)]
    results = attacked(case, tmp_path, MSP(case.model), attack=Timid(steps=4), threats=threats)
    by_eps = {
        r.scenario: r.verdict for r in results.find(metric="flag_rises_with_eps", side="both")
    }
    assert by_eps == {"timid linf:0.05": "pass", "timid linf:0.07": "fail"}


def test_attacking_one_side_only_is_a_warning(case, tmp_path):
    results = attacked(case, tmp_path, MSP(case.model), sides=("outside",))
    assert {r.side for r in results.rows if r.scenario != "clean"} == {"outside"}
    assert verdicts(results, "outside")["one_side_only"] == "warn"
    assert results.find(metric="auroc", side="outside")[0].verdict == "warn"
    assert not list(tmp_path.glob("scores/**/inside-pgd*"))


def test_leaving_the_threat_model_is_found_on_what_is_saved(case, tmp_path):
    results = attacked(case, tmp_path, MSP(case.model), threats=[Leaky(0.05)])
    rows = results.find(metric="flag_left_the_threat_model", side="both")
    assert [(r.verdict, r.value > 0.5) for r in rows] == [("fail", True)]
    assert results.find(metric="auroc", side="both")[0].verdict == "fail"


def test_findings_of_an_unattacked_side_do_not_count(case, tmp_path):
    class HalfDead(OutputDetector):
        """Flat where images are confidently in."""

        def score_outputs(self, out):
            return margin(out.logits).clamp_min(-4)

    results = attacked(case, tmp_path, HalfDead(case.model))
    (inside,) = results.find(metric="flag_zero_gradient", side="inside")
    (outside,) = results.find(metric="flag_zero_gradient", side="outside")
    (both,) = results.find(metric="flag_zero_gradient", side="both")
    assert outside.value == 0
    assert inside.value > 0.5
    assert both.value == inside.value  # the worse side, not the mean of the two


@pytest.mark.parametrize(
    ("finding", "value", "verdict"),
    [
        (checks.zero_gradient(np.uint8([0] * 100)), 0, "pass"),
        (checks.zero_gradient(np.uint8([1] * 5 + [0] * 95)), 0.05, "warn"),
        (checks.zero_gradient(np.uint8([1] * 11 + [0] * 89)), 0.11, "fail"),
        (checks.tied_scores(np.arange(100.0), np.arange(50.0)), 0, "pass"),
        (checks.tied_scores(np.arange(100.0), np.r_[0.0, 0.0, np.arange(1.0, 49.0)]), 0.04, "warn"),
        (checks.tied_scores(np.zeros(10), np.arange(50.0)), 1, "fail"),
        (checks.random_search_wins(np.zeros(50), np.ones(50)), 0, "pass"),
        (checks.random_search_wins(np.ones(50), np.ones(50)), 0, "pass"),
        (checks.random_search_wins(np.r_[2.0, 2.0, np.zeros(48)], np.ones(50)), 0.04, "warn"),
        (checks.random_search_wins(np.ones(50), np.zeros(50)), 1, "fail"),
        (checks.left_the_threat_model(np.uint8([0] * 999 + [1])), 0.001, "fail"),
        (checks.rises_with_eps([0.9, 0.5, 0.2]), 0, "pass"),
        (checks.rises_with_eps([0.9, 0.5, 0.53]), 0.03, "warn"),
        (checks.rises_with_eps([0.9, 0.2, 0.4, 0.1]), 0.2, "fail"),
        (checks.rises_with_eps([0.9]), 0, "pass"),
        (checks.one_side_only(["inside", "both"]), 0, "pass"),
        (checks.one_side_only(["inside", "outside"]), 1, "warn"),
        (checks.too_good(0.85, 8 / 255, "linf"), 0.85, "warn"),
        (checks.too_good(0.85, 7 / 255, "linf"), 0.85, "pass"),
        (checks.too_good(0.79, 8 / 255, "linf"), 0.79, "pass"),
        (checks.too_good(0.85, 8 / 255, "l2"), 0.85, "pass"),
    ],
)
def test_findings_are_graded_as_stated(finding, value, verdict):
    assert finding.value == pytest.approx(value)
    assert finding.verdict == verdict


def test_the_verdict_is_that_of_the_worst_finding():
    grades = [checks.Finding("a", 0.0, v) for v in ("pass", "fail", "warn")]
    assert checks.worst(grades) == "fail"
    assert checks.worst(grades[::2]) == "warn"
    assert checks.worst([]) == "pass"


def test_the_planted_detectors_rank_as_honest_ones_do(case):
    x = torch.cat([case.inside[0], case.outside["grey"]])
    honest = MSP(case.model).score(x)
    for planted in (Rounded, Misleading):
        torch.testing.assert_close(planted(case.model).score(x), honest, atol=1e-4, rtol=1e-4)
