"""Each check of an attack fires on its planted fault, is quiet on honest work, and is explained."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_audit import N, toy_case

from rood import data
from rood.attacks import PGD, RandomSearch
from rood.attacks.base import Goal
from rood.data.base import ImageSet
from rood.detectors import MSP
from rood.detectors.base import Detector, OutputDetector
from rood.evaluation import checks
from rood.evaluation.probes import (
    CONTROLS,
    FEW,
    NUDGES,
    QUERIES,
    WITHOUT_LIMIT,
    Examination,
)
from rood.evaluation.rows import Evidence, _attack_findings, _attacked
from rood.evaluation.unit import AttackUnit, join
from rood.goals import look_in
from rood.models import zoo
from rood.numerics.softmax import margin
from rood.report.flags import FLAGS
from rood.seeds import generator
from rood.threat import L2, Linf

DOCS = Path(__file__).parents[2] / "docs" / "flags.md"
MEASURED = {
    *("zero_gradient", "untrue_gradient", "random_search_wins", "left_the_threat_model"),
    *("two_calls_differ", "batch_matters", "transfer_beats_direct", "base_only"),
    *("lost_by_rounding", "more_steps_gain", "far_from_zero"),
}


@pytest.fixture(scope="module")
def case():
    return toy_case()


def measured(detector, inside, outside, *, attack=None, threat=None, **more):
    """What is known of both sides of an attack, inside first."""
    sets = {"inside": ImageSet("inside", inside), "outside": ImageSet("outside", outside)}
    sides = []
    for role, other in (("inside", "outside"), ("outside", "inside")):
        unit = AttackUnit(
            detector,
            sets[role],
            role,
            attack or PGD(steps=20),
            threat or Linf(0.05),
            purpose=("d", role),
            seed=0,
            **({"batch_size": 64, "other_side": sets[other]} | more),
        )
        sides.append(join([part for part, _ in unit.run()]))
    return sides


def found(case, detector, **more):
    """Every finding about an attack on the toy world, by name."""
    sides = measured(detector, case.inside[0], case.outside["grey"], **more)
    return {f.name: f for f in _attack_findings(sides)}


def fired(findings):
    return {name for name, f in findings.items() if f.verdict != "pass"}


class Noisy(OutputDetector):
    """Dropout left on, in effect."""

    def __init__(self, model, *, size=1.0):
        super().__init__(model)
        self.size = size
        self.source = torch.Generator().manual_seed(0)

    def score_outputs(self, out):
        s = margin(out.logits)
        return s + self.size * torch.randn(len(s), generator=self.source)


class Company(OutputDetector):
    """Scored against the rest of the batch."""

    def score_outputs(self, out):
        s = margin(out.logits)
        return s - s.mean()


class Quantised(OutputDetector):
    """Whole numbers: flat between them."""

    def score_outputs(self, out):
        return margin(out.logits).round()


class WithStandIn(Quantised):
    """Flat too, but it says what to climb instead."""

    def surrogates(self):
        return (MSP(self.model).score_images,)


class Turned(OutputDetector):
    """A gradient that leads away, and a stand-in that leads there."""

    def score_outputs(self, out):
        s = margin(out.logits)
        return 2 * s.detach() - s

    def surrogates(self):
        return (MSP(self.model).score_images,)


class Boxed(OutputDetector):
    """Whatever is at all likely to be in scores the same."""

    def score_outputs(self, out):
        return margin(out.logits).clamp_min(0)


class BetweenLevels(Detector):
    """Has a weakness that no image of 8 bits can use."""

    def score_images(self, x):
        wave = torch.sin(2 * torch.pi * 255 * x).flatten(1).sum(dim=1)
        return margin(self.model(x).logits) + 0.2 * wave


class Cut(OutputDetector):
    """No gradient at all."""

    def score_outputs(self, out):
        return margin(out.logits).detach()


def test_an_honest_detector_raises_nothing():
    model = zoo.load("digits-ce")
    inside = data.load("digits:inside", limit=32).pixels()
    outside = data.load("digits:near", limit=32).pixels()
    sides = measured(MSP(model), inside, outside, threat=Linf(8 / 255), attack=PGD(steps=20))
    findings = {f.name: f for f in _attack_findings(sides)}
    assert set(findings) == MEASURED
    assert fired(findings) == set()


def test_a_score_that_differs_from_call_to_call_is_found(case):
    findings = found(case, Noisy(case.model))
    assert findings["two_calls_differ"].verdict == "fail"
    assert findings["batch_matters"].verdict == "pass"  # not blamed on the company
    assert found(case, Noisy(case.model, size=0.01))["two_calls_differ"].verdict == "warn"


def test_a_score_that_depends_on_the_batch_is_found(case):
    findings = found(case, Company(case.model))
    assert findings["batch_matters"].verdict == "fail"
    assert findings["two_calls_differ"].value == 0


def test_one_step_is_too_few(case):
    timid = PGD(steps=1, step=0.01, random_start=False)
    weak, enough = (
        found(case, MSP(case.model), attack=a, threat=Linf(0.1)) for a in (timid, PGD(steps=20))
    )
    assert weak["more_steps_gain"].verdict == "fail"
    assert enough["more_steps_gain"].verdict == "pass"


@pytest.mark.parametrize("planted", [Quantised, Boxed])
def test_a_flat_score_does_not_fall_without_a_limit(case, planted):
    assert found(case, planted(case.model))["far_from_zero"].verdict == "fail"
    assert found(case, MSP(case.model))["far_from_zero"].value < 0.05


def test_a_stand_in_that_leads_further_is_found(case):
    findings = found(case, Turned(case.model))
    assert findings["transfer_beats_direct"].verdict == "warn"
    assert findings["transfer_beats_direct"].value > 0.5
    assert found(case, MSP(case.model))["transfer_beats_direct"].value == 0


def test_a_score_that_was_never_climbed_itself_is_found(case):
    findings = found(case, WithStandIn(case.model), attack=PGD(steps=20, random_start=False))
    assert findings["base_only"].verdict == "fail"
    assert found(case, MSP(case.model))["base_only"].value == 0


@pytest.mark.parametrize("threat", [Linf(0.4 / 255), L2(0.02)], ids=str)
def test_a_gain_that_no_8_bit_image_keeps_is_found(case, threat):
    case = toy_case()
    case.inside = ((255 * case.inside[0]).round() / 255, case.inside[1])
    case.outside = {"grey": (255 * case.outside["grey"]).round() / 255}
    findings = found(case, BetweenLevels(case.model), threat=threat)
    assert findings["lost_by_rounding"].verdict == "warn"
    levels = found(case, MSP(case.model), threat=Linf(13 / 255))
    assert levels["lost_by_rounding"].verdict == "pass"


def test_an_attack_by_queries_is_examined_by_queries(case):
    findings = found(case, Cut(case.model), attack=RandomSearch(queries=5))
    assert set(findings) == MEASURED
    assert findings["zero_gradient"].value == 0
    assert findings["far_from_zero"].verdict == "fail"


def test_a_missing_gradient_is_a_dead_one(case):
    """Where the attack goes on without, as one of many parts does."""
    x = case.inside[0][:6]
    goal = look_in(Cut(case.model))
    draws = lambda purpose: generator(0, purpose)
    exam = Examination(Cut(case.model), goal, PGD(), Linf(0.05), draws)
    assert exam.gradient(x, torch.arange(3))["zero_gradient"].tolist() == [1] * 6
    further = exam.further(x, x, case.outside["grey"][:6])
    assert {k: len(v) for k, v in further.items()} == {"more": 6, "far": 6, "far_start": 6}


def test_what_is_measured_does_not_depend_on_the_batch_size(case):
    few = {"detector": MSP(case.model), "inside": case.inside[0], "outside": case.outside["grey"]}
    few["attack"] = PGD(steps=4)
    for one, other in zip(measured(**few), measured(**few, batch_size=15), strict=True):
        assert one.keys() == other.keys()
        for key in one:
            np.testing.assert_allclose(one[key], other[key], rtol=1e-3, atol=1e-3, err_msg=key)


def test_the_dear_checks_climb_from_the_attacked_image_and_from_the_other_side(case):
    climbed = []
    detector, x, start = MSP(case.model), case.inside[0][:4], case.outside["grey"][:4]

    def watched(x):
        if x.requires_grad:
            climbed.append(x.detach())
        return detector.score_images(x)

    goal = Goal(watched)
    exam = Examination(detector, goal, PGD(steps=12), Linf(0.05), lambda p: generator(0, p))
    exam.further(x, found := (x + 0.04).clamp(0, 1), start)
    torch.testing.assert_close(climbed[0], found)
    torch.testing.assert_close(climbed[12], start)
    assert len(climbed) == 12 + WITHOUT_LIMIT.steps


def test_a_slope_that_bends_within_the_longest_step_is_true_and_a_turned_one_is_not(case):
    x = torch.full_like(case.inside[0][:4], 0.5)
    size = x[0].numel() ** 0.5
    along = lambda x: (x - 0.5).flatten(1).sum(dim=1) / size
    wave = 1 / (NUDGES[0] * size)  # the longest step goes 1.4 radians far
    bent = Goal(lambda x: (1.4 * wave * along(x)).sin())
    turned = Goal(lambda x: 2 * along(x).detach() - along(x))

    def honesty(goal):
        exam = Examination(MSP(case.model), goal, PGD(), Linf(0.05), lambda p: generator(0, p))
        return exam.gradient(x, torch.arange(4))["honesty"]

    torch.testing.assert_close(honesty(bent), torch.ones(4), atol=0.05, rtol=0)
    assert ((honesty(turned) - 1).abs() > 0.25).all()


def test_a_batch_without_control_images_is_no_error(case):
    x, none = case.inside[0][:4], case.inside[0][:0]
    exam = Examination(
        MSP(case.model), look_in(MSP(case.model)), PGD(), Linf(0.05), lambda p: generator(0, p)
    )
    measured = exam.usual(none, none) | exam.further(none, none, none)
    assert {len(v) for v in measured.values()} == {0}
    gradient = exam.gradient(x, torch.arange(0))
    assert (len(gradient["zero_gradient"]), len(gradient["honesty"])) == (4, 0)


def test_a_few_images_of_the_other_side_are_enough(case):
    few = ImageSet("few", case.outside["grey"][:3])
    inside, _ = measured(MSP(case.model), *2 * [case.inside[0]], other_side=few)
    assert len(inside["far"]) == FEW
    assert len(np.unique(inside["far_start"].round(3))) == 3


def test_without_images_of_the_other_side_the_dear_checks_are_left_out(case):
    findings = found(case, MSP(case.model), other_side=None)
    assert set(findings) == MEASURED - {"more_steps_gain", "far_from_zero"}


def test_a_folder_of_an_older_rood_lacks_the_newer_checks_and_no_more(case):
    inside, outside = measured(MSP(case.model), case.inside[0], case.outside["grey"])
    known = {"scores", "before", "left", "sign", "zero_gradient", "honesty"}
    known |= {"control", "control_before", "control_after"}
    old = {k: v for k, v in inside.items() if k in known}
    older = {f.name for f in _attack_findings([old, {"scores": outside["scores"]}])}
    assert older == {
        *("zero_gradient", "untrue_gradient", "random_search_wins", "left_the_threat_model")
    }
    assert {f.name for f in _attack_findings([old, outside])} == MEASURED


def test_an_image_that_is_done_is_no_win_for_random_search(case):
    inside, outside = measured(MSP(case.model), case.inside[0], case.outside["grey"])
    ahead = outside | {"control": outside["control_after"] - 1}  # low is the wanted way
    wins = lambda a: {f.name: f for f in _attack_findings([inside, a])}["random_search_wins"].value
    assert wins(ahead) == 1
    done = np.full(N, -outside["control_after"].max() - 0.1, np.float32)
    assert wins(ahead | {"enough": done}) == 0


def test_the_unit_hands_over_when_an_image_is_done(case):
    seen = []

    class Watching(PGD):
        def climb(self, goal, x, threat, noise):
            seen.append(goal.enough)
            return super().climb(goal, x, threat, noise)

    inside, _ = measured(
        MSP(case.model), case.inside[0], case.outside["grey"], attack=Watching(steps=1), enough=2.5
    )
    assert seen == [2.5, 2.5]
    assert (inside["enough"] == 2.5).all()


def test_what_has_no_budget_counts_for_every_budget_of_its_norm():
    far = {"far": np.zeros(2), "far_start": np.ones(2)}
    attacked = {(s, t): {"scores": np.ones(3)} for s in "ab" for t in (Linf(0.1), L2(1.0))}
    attacked["a", Linf(0.2)] = {"scores": np.ones(3)} | far
    e = Evidence({}, {}, attacked, "a", ["b"], [], [], "pgd")
    has = {(s, str(t)) for s, t in attacked if "far" in _attacked(e, s, t)}
    assert has == {("a", "linf:0.1"), ("a", "linf:0.2")}


@pytest.mark.parametrize(
    ("finding", "value", "verdict"),
    [
        (checks.two_calls_differ(np.r_[1.0, 2], np.r_[1.0, 2], np.r_[0.0, 2]), 0, "pass"),
        (checks.two_calls_differ(np.r_[1.0, 2], np.r_[1.0, 2.02], np.r_[0.0, 2]), 0.01, "warn"),
        (checks.two_calls_differ(np.r_[np.inf, 2], np.r_[np.inf, 3], np.r_[0.0, 2]), 0.5, "fail"),
        (checks.two_calls_differ(np.ones(2), np.ones(2), np.full(3, np.inf)), 0, "pass"),
        (checks.batch_matters(*np.zeros((3, 4)), np.r_[0.0, 2]), 0, "pass"),
        (checks.batch_matters(*np.zeros((2, 4)), np.ones(4), np.r_[0.0, 2]), 1, "fail"),
        (checks.batch_matters(np.zeros(4), np.ones(4), np.ones(4), np.r_[0.0, 2]), 0, "pass"),
        (checks.transfer_beats_direct(np.ones(10), np.ones(10)), 0, "pass"),
        (checks.transfer_beats_direct(np.r_[0.0, 0, np.ones(8)], np.ones(10)), 0.2, "warn"),
        (checks.transfer_beats_direct(np.zeros(10), np.ones(10)), 1, "warn"),
        (checks.transfer_beats_direct(np.full(10, 0.95), np.ones(10)), 0, "pass"),
        (checks.base_only(np.full(10, 0.2), np.ones(10)), 0, "pass"),
        (checks.base_only(np.r_[np.zeros(2), np.ones(8)], np.ones(10)), 0.2, "warn"),
        (checks.base_only(np.zeros(10), np.ones(10)), 1, "fail"),
        (checks.base_only(np.zeros(10), np.zeros(10)), 0, "pass"),
        (checks.lost_by_rounding(np.ones(4), np.ones(4), np.zeros(4)), 0, "pass"),
        (checks.lost_by_rounding(np.ones(4), -np.ones(4), np.zeros(4)), 1, "warn"),
        (checks.lost_by_rounding(-np.ones(4), np.ones(4), np.zeros(4)), 0, "pass"),
        (checks.more_steps_gain(-np.ones(4), np.ones(4), np.zeros(4)), 1, "fail"),
        (checks.more_steps_gain(np.ones(4), -np.ones(4), np.zeros(4)), 0, "pass"),
        (checks.more_steps_gain(-np.ones(10), np.r_[1.0, -np.ones(9)], np.zeros(4)), 0.1, "warn"),
        (checks.far_from_zero(np.ones(4), np.zeros(4)), 0, "pass"),
        (checks.far_from_zero(np.zeros(4), np.zeros(4)), 0.5, "fail"),
        (checks.far_from_zero(np.r_[0.0, 0, 0, 1, 1], np.zeros(5)), 0.3, "warn"),
    ],
)
def test_findings_are_graded_as_stated(finding, value, verdict):
    assert finding.value == pytest.approx(value, abs=1e-4)
    assert finding.verdict == verdict


def test_the_documents_state_the_limits_of_the_code():
    text = " ".join(DOCS.read_text().split())
    stated = {}
    for name, warn, fail in re.findall(
        r"### (\w+) Warns above ([\d.]+), (?:fails above ([\d.]+)|never fails):", text
    ):
        stated[name] = (float(warn), float(fail) if fail else checks.NEVER)
    assert stated == checks.LIMITS


def test_the_documents_state_how_many_images_are_examined():
    text = " ".join(DOCS.read_text().split())
    assert f"on {CONTROLS} evenly spaced control images" in text
    assert f"the best of {QUERIES} random points" in text
    assert f"{FEW} of these are moved by {WITHOUT_LIMIT.steps} steps" in text


def test_every_flag_and_no_other_has_words_on_the_page():
    assert set(checks.LIMITS) == set(FLAGS)
