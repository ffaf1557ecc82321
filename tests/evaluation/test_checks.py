"""Each check fires on the fault it is for, is quiet on honest work, and is explained."""

import inspect
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_audit import N, attacked, measured, toy_case, verdicts

from rood import data
from rood.attacks import PGD, RandomSearch
from rood.detectors import MSP
from rood.detectors.base import Detector, OutputDetector
from rood.evaluation.checks import Case, Flag, checks, registry, worst
from rood.evaluation.checks.base import TESTS, SetCheck
from rood.evaluation.probes import BLIND, DRAWS, FEW, QUERIES, STEPS, STRIDES, WITHOUT_LIMIT
from rood.evaluation.rows import Evidence, _attacked
from rood.metrics import auroc
from rood.models import zoo
from rood.numerics.softmax import margin
from rood.threat import L2, Linf

# what each check of an attacked set is computed from; `other`: scores of the other side
ARRAYS = {
    "zero_gradient": ("zero_gradient",),
    "untrue_gradient": ("honesty",),
    "rough_score": ("path_stride",),
    "many_optima": ("regained",),
    "custom_backward": ("custom_backward", "zero_gradient"),
    "random_search_wins": ("control", "control_after"),
    "black_box_gains": ("few_after", "blind", "other"),
    "left_the_threat_model": ("left",),
    "two_calls_differ": ("apart", "again", "before"),
    "score_drifts": ("before", "later", "clean"),
    "batch_matters": ("apart", "again", "control_before", "before"),
    "transfer_beats_direct": ("direct", "scores"),
    "base_only": ("direct", "scores"),
    "lost_by_rounding": ("control_after", "rounded", "other"),
    "more_steps_gain": ("few_after", "more", "other"),
    "far_from_zero": ("far", "far_start"),
}
FURTHER = {"black_box_gains", "more_steps_gain", "far_from_zero"}  # of a few images


def of(sets, **changes):
    """A case of two sets, ID first."""
    clean = tuple(s.get("clean", s.get("before", s.get("scores", np.arange(2.0)))) for s in sets)
    usual = {"clean": clean, "aurocs": [0.9, 0.1], "norm": "linf"}
    usual |= {"eps": 0.05, "side": "both", "sides": ("both",)}
    return Case(sets=tuple(sets), **(usual | changes))


def set_flags(sides):
    """The flags of the checks of attacked sets, by name."""
    found = (check.flag(of(sides)) for check in checks() if isinstance(check, SetCheck))
    return {flag.name: flag for flag in found if flag}


def found(case, detector, **more):
    """The same of an attack on the toy world."""
    return set_flags(measured(detector, case.inside[0], case.outside["grey"], **more))


def fired(flags):
    return {name for name, flag in flags.items() if flag.verdict != "pass"}


@pytest.fixture(scope="module")
def case():
    case = toy_case()
    case.outside = {"grey": case.outside["grey"]}
    return case


@pytest.fixture(scope="module")
def sides(case):
    """Both sides of an attack on MSP, ID first."""
    return measured(MSP(case.model), case.inside[0], case.outside["grey"])


@pytest.fixture(scope="module")
def honest(sides):
    return set_flags(sides)


class Probability(OutputDetector):
    """What papers print: it is 0 to all digits for most images."""

    def score_outputs(self, out):
        return 1 - (100 * out.logits).softmax(dim=1).amax(dim=1)


class Rounded(OutputDetector):
    """Its steps are so fine that scores hardly tie, but the gradient is 0 between them."""

    def score_outputs(self, out):
        return (1e5 * margin(out.logits)).round() / 1e5


class Misleading(OutputDetector):
    """The right score with a gradient that points away."""

    def score_outputs(self, out):
        s = margin(out.logits)
        return 2 * s.detach() - s


class MisleadingWithSurrogate(Misleading):
    """The same with a surrogate whose gradient is right."""

    def surrogates(self):
        return (MSP(self.model).score_images,)


class Noisy(OutputDetector):
    """Dropout left on, in effect."""

    def __init__(self, model, *, size=1.0):
        super().__init__(model)
        self.size = size
        self.source = torch.Generator().manual_seed(0)

    def score_outputs(self, out):
        s = margin(out.logits)
        return s + self.size * torch.randn(len(s), generator=self.source)


class Centred(OutputDetector):
    """Scored against the rest of the batch."""

    def score_outputs(self, out):
        s = margin(out.logits)
        return s - s.mean()


class Quantised(OutputDetector):
    """Whole numbers: flat between them."""

    def score_outputs(self, out):
        return margin(out.logits).round()


class QuantisedWithSurrogate(Quantised):
    """Flat too, but it says what to climb instead."""

    def surrogates(self):
        return (MSP(self.model).score_images,)


class Clamped(OutputDetector):
    """Scores below `low` are all the same."""

    def __init__(self, model, *, low=0.0):
        super().__init__(model)
        self.low = low

    def score_outputs(self, out):
        return margin(out.logits).clamp_min(self.low)


class BetweenLevels(Detector):
    """Has a weakness that no image of 8 bits can use."""

    def score_images(self, x):
        wave = torch.sin(2 * torch.pi * 255 * x).flatten(1).sum(dim=1)
        return margin(self.model(x).logits) + 0.2 * wave


class Cut(OutputDetector):
    """No gradient at all."""

    def score_outputs(self, out):
        return margin(out.logits).detach()


@dataclass(frozen=True, kw_only=True)
class Timid(PGD):
    """Does not move at the larger budget."""

    def climb(self, goal, x, threat, noise):
        return x if threat.eps > 0.06 else super().climb(goal, x, threat, noise)


@dataclass(frozen=True)
class Leaky(Linf):
    """Lets an attack go twice as far as it says."""

    def shrink(self, delta):
        return delta.clamp(-2 * self.eps, 2 * self.eps)


def test_the_planted_detectors_rank_as_honest_ones_do(case):
    x = torch.cat([case.inside[0], case.outside["grey"]])
    honest = MSP(case.model).score(x)
    for planted in (Rounded, Misleading):
        torch.testing.assert_close(planted(case.model).score(x), honest, atol=1e-4, rtol=1e-4)


# an audit as a whole


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


def test_a_gradient_of_zero_is_found(case, tmp_path):
    found = verdicts(attacked(case, tmp_path, Rounded(case.model)))
    assert found["zero_gradient"] == "fail"
    assert found["tied_scores"] == "pass"


def test_a_misleading_gradient_is_found_by_random_search(case, tmp_path):
    results = attacked(case, tmp_path, Misleading(case.model))
    found = verdicts(results)
    assert found["random_search_wins"] == "fail"
    assert found["zero_gradient"] == "pass"
    assert results.find(metric="auroc", side="both")[0].verdict == "fail"


def test_an_attack_that_gets_lost_at_a_larger_eps_is_found(case, tmp_path):
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


def test_flags_of_an_unattacked_side_do_not_count(case, tmp_path):
    results = attacked(case, tmp_path, Clamped(case.model, low=-4))  # flat for confident images
    (inside,) = results.find(metric="flag_zero_gradient", side="inside")
    (outside,) = results.find(metric="flag_zero_gradient", side="outside")
    (both,) = results.find(metric="flag_zero_gradient", side="both")
    assert outside.value == 0
    assert inside.value > 0.5
    assert both.value == inside.value  # the worse side, not the mean of the two


# one attack on both sides


def test_an_honest_detector_of_the_zoo_raises_nothing():
    inside, outside = (data.load(f"digits:{n}", limit=16).pixels() for n in ("inside", "near"))
    how = {"threat": Linf(8 / 255), "attack": PGD(steps=10)}
    flags = set_flags(measured(MSP(zoo.load("digits-ce")), inside, outside, **how))
    assert flags.keys() == ARRAYS.keys()
    assert fired(flags) == set()


def test_a_score_that_differs_from_call_to_call_is_found(case):
    flags = found(case, Noisy(case.model))
    assert flags["two_calls_differ"].verdict == "fail"
    assert flags["batch_matters"].verdict == "pass"  # not blamed on the batch
    assert found(case, Noisy(case.model, size=0.01))["two_calls_differ"].verdict == "warn"


def test_a_score_that_depends_on_the_batch_is_found(case):
    flags = found(case, Centred(case.model))
    assert flags["batch_matters"].verdict == "fail"
    assert flags["two_calls_differ"].value == 0


def test_one_step_is_too_few(case):
    timid = PGD(steps=1, step=0.01, random_start=False)
    weak, enough = (
        found(case, MSP(case.model), attack=a, threat=Linf(0.1)) for a in (timid, PGD(steps=20))
    )
    assert weak["more_steps_gain"].verdict == "fail"
    assert enough["more_steps_gain"].verdict == "pass"


@pytest.mark.parametrize("planted", [Quantised, Clamped])
def test_a_flat_score_does_not_fall_without_a_limit(case, honest, planted):
    assert found(case, planted(case.model))["far_from_zero"].verdict == "fail"
    assert honest["far_from_zero"].value < 0.05


def test_a_surrogate_that_leads_further_is_found(case, honest):
    flags = found(case, MisleadingWithSurrogate(case.model))
    assert flags["transfer_beats_direct"].verdict == "warn"
    assert flags["transfer_beats_direct"].value > 0.5
    assert honest["transfer_beats_direct"].value == 0


def test_a_score_that_was_never_climbed_itself_is_found(case, honest):
    attack = PGD(steps=20, random_start=False)
    flags = found(case, QuantisedWithSurrogate(case.model), attack=attack)
    assert flags["base_only"].verdict == "fail"
    assert honest["base_only"].value == 0


def test_a_gain_that_no_8_bit_image_keeps_is_found(case):
    inside, outside = ((255 * x).round() / 255 for x in (case.inside[0], case.outside["grey"]))
    lost = lambda detector, threat: (
        set_flags(measured(detector(case.model), inside, outside, threat=threat))[
            "lost_by_rounding"
        ].verdict
    )
    for threat in (Linf(0.4 / 255), L2(0.02)):
        assert lost(BetweenLevels, threat) == "warn"
    assert lost(MSP, Linf(13 / 255)) == "pass"


def test_an_attack_by_queries_is_examined_by_queries(case):
    flags = found(case, Cut(case.model), attack=RandomSearch(queries=5))
    assert flags.keys() == ARRAYS.keys()
    assert flags["zero_gradient"].value == 0
    assert flags["far_from_zero"].verdict == "fail"


def test_without_images_of_the_other_side_the_expensive_checks_are_left_out(case):
    flags = found(case, MSP(case.model), other_side=None)
    assert flags.keys() == ARRAYS.keys() - FURTHER


def test_a_folder_of_an_older_rood_lacks_the_newer_checks_and_no_more(sides):
    inside, outside = sides
    known = {"scores", "before", "left", "sign", "zero_gradient", "honesty"}
    known |= {"control", "control_before", "control_after"}
    old = {k: v for k, v in inside.items() if k in known}  # as written by 0.1
    assert set_flags([old, {"scores": outside["scores"]}]).keys() == {
        *("zero_gradient", "untrue_gradient", "random_search_wins", "left_the_threat_model")
    }
    assert set_flags([old, outside]).keys() == ARRAYS.keys()


def test_an_image_that_is_done_is_no_win_for_random_search(sides):
    inside, outside = sides
    ahead = outside | {"control": outside["control_after"] - 1}  # the attacker wants it low
    wins = lambda arrays: set_flags([inside, arrays])["random_search_wins"].value
    assert wins(ahead) == 1
    done = np.full(N, -outside["control_after"].max() - 0.1, np.float32)
    assert wins(ahead | {"enough": done}) == 0


def test_what_has_no_budget_counts_for_every_budget_of_its_norm():
    far = {"far": np.zeros(2), "far_start": np.ones(2)}
    attacked = {(s, t): {"scores": np.ones(3)} for s in "ab" for t in (Linf(0.1), L2(1.0))}
    attacked["a", Linf(0.2)] = {"scores": np.ones(3)} | far
    e = Evidence(clean={}, attacked=attacked, outside=["b"], threats=[], sides=[], attack="pgd")
    has = {(s, str(t)) for s, t in attacked if "far" in _attacked(e, s, t)}
    assert has == {("a", "linf:0.1"), ("a", "linf:0.2")}


# limits


@pytest.mark.parametrize(
    ("name", "arrays", "value", "verdict"),
    [
        ("zero_gradient", [np.uint8([0] * 100)], 0, "pass"),
        ("zero_gradient", [np.uint8([1] * 8 + [0] * 92)], 0.08, "pass"),
        ("zero_gradient", [np.uint8([1] * 14 + [0] * 86)], 0.14, "warn"),
        ("zero_gradient", [np.uint8([1] * 21 + [0] * 79)], 0.21, "fail"),
        ("untrue_gradient", [np.r_[1.0, 0.8, 1.2, 1.0]], 0, "pass"),
        ("untrue_gradient", [np.r_[1.0, np.nan, 0.0]], 2 / 3, "pass"),
        ("untrue_gradient", [np.r_[np.ones(10), np.full(20, np.nan)]], 2 / 3, "fail"),
        ("rough_score", [np.full((32, 2), 0.8)], 0, "pass"),
        (
            "rough_score",
            [np.repeat(np.r_[np.zeros(13), np.ones(19)], 2).reshape(32, 2)],
            0.40625,
            "warn",
        ),
        ("rough_score", [np.c_[np.zeros(32), np.ones(32)]], 0, "pass"),
        ("rough_score", [np.zeros((32, 2))], 1, "fail"),
        ("many_optima", [np.full((32, 2), 0.7)], 0, "pass"),
        ("many_optima", [np.ones((32, 2))], 1, "fail"),
        ("many_optima", [np.tile([1.0, 0.5], (32, 1))], 0, "pass"),
        ("many_optima", [np.r_[np.ones((12, 2)), np.zeros((20, 2))]], 0.375, "pass"),
        ("many_optima", [np.r_[np.ones((18, 2)), np.zeros((14, 2))]], 0.5625, "warn"),
        ("custom_backward", [np.ones(4), np.zeros(4)], 1, "pass"),
        ("custom_backward", [np.ones(4), np.ones(4)], 1, "warn"),
        ("custom_backward", [np.zeros(4), np.ones(4)], 0, "pass"),
        ("random_search_wins", [np.zeros(50), np.ones(50)], 0, "pass"),
        ("random_search_wins", [np.ones(50), np.ones(50)], 0, "pass"),
        ("random_search_wins", [np.r_[2.0, 2.0, np.zeros(48)], np.ones(50)], 0.04, "pass"),
        ("random_search_wins", [np.r_[np.full(6, 2.0), np.zeros(44)], np.ones(50)], 0.12, "warn"),
        ("random_search_wins", [np.r_[1.0, np.full(31, -1.0)], np.full(32, -1.0)], 1 / 32, "pass"),
        (
            "random_search_wins",
            [np.r_[1.0, 1, np.full(30, -1.0)], np.full(32, -1.0)],
            0.0625,
            "fail",
        ),
        (
            "random_search_wins",
            [np.r_[np.inf, np.zeros(49)], np.r_[np.inf, np.ones(49)]],
            0,
            "pass",
        ),
        ("random_search_wins", [np.ones(50), np.r_[np.inf, np.zeros(49)]], 0.98, "fail"),
        ("black_box_gains", [-np.ones(4), np.ones(4), np.zeros(4)], 1, "fail"),
        ("black_box_gains", [np.ones(4), -np.ones(4), np.zeros(4)], 0, "pass"),
        ("random_search_wins", [np.ones(50), np.zeros(50)], 1, "fail"),
        ("left_the_threat_model", [np.uint8([0] * 999 + [1])], 0.001, "fail"),
        ("two_calls_differ", [np.r_[1.0, 2], np.r_[1.0, 2], np.r_[0.0, 2]], 0, "pass"),
        ("two_calls_differ", [np.r_[1.0, 2], np.r_[1.0, 2.02], np.r_[0.0, 2]], 0.01, "warn"),
        ("two_calls_differ", [np.r_[np.inf, 2], np.r_[np.inf, 3], np.r_[0.0, 2]], 0.5, "fail"),
        ("two_calls_differ", [np.ones(2), np.ones(2), np.full(3, np.inf)], 0, "pass"),
        ("two_calls_differ", [np.r_[1.0, 2], np.r_[np.inf, 2], np.r_[0.0, 2]], 5, "fail"),
        ("score_drifts", [np.r_[0.0, 2], np.r_[0.0, 2], np.r_[0.0, 2]], 0, "pass"),
        ("score_drifts", [np.r_[0.0, 2], np.r_[0.0, 2.02], np.r_[0.0, 2]], 0.01, "warn"),
        ("score_drifts", [np.r_[0.0, 2], np.r_[0.0, 2], np.r_[1.0, 3]], 1, "fail"),
        ("score_drifts", [np.r_[1.0, np.inf], np.r_[1.0, np.inf], np.r_[1.0, np.inf]], 0, "pass"),
        ("batch_matters", [*np.zeros((3, 4)), np.r_[0.0, 2]], 0, "pass"),
        ("batch_matters", [*np.zeros((2, 4)), np.ones(4), np.r_[0.0, 2]], 1, "fail"),
        ("batch_matters", [np.zeros(4), np.ones(4), np.ones(4), np.r_[0.0, 2]], 0, "pass"),
        ("transfer_beats_direct", [np.ones(10), np.ones(10)], 0, "pass"),
        ("transfer_beats_direct", [np.r_[0.0, 0, np.ones(8)], np.ones(10)], 0.2, "pass"),
        ("transfer_beats_direct", [np.r_[np.zeros(6), np.ones(4)], np.ones(10)], 0.6, "warn"),
        ("transfer_beats_direct", [np.zeros(10), np.ones(10)], 1, "warn"),
        ("transfer_beats_direct", [np.full(10, 0.95), np.ones(10)], 0, "pass"),
        ("base_only", [np.full(10, 0.2), np.ones(10)], 0, "pass"),
        ("base_only", [np.r_[np.zeros(2), np.ones(8)], np.ones(10)], 0.2, "pass"),
        ("base_only", [np.r_[np.zeros(6), np.ones(4)], np.ones(10)], 0.6, "warn"),
        ("base_only", [np.zeros(10), np.ones(10)], 1, "fail"),
        ("base_only", [np.zeros(10), np.zeros(10)], 0, "pass"),
        ("lost_by_rounding", [np.ones(4), np.ones(4), np.zeros(4)], 0, "pass"),
        ("lost_by_rounding", [np.ones(4), -np.ones(4), np.zeros(4)], 1, "warn"),
        ("lost_by_rounding", [-np.ones(4), np.ones(4), np.zeros(4)], 0, "pass"),
        ("more_steps_gain", [-np.ones(4), np.ones(4), np.zeros(4)], 1, "fail"),
        ("more_steps_gain", [np.ones(4), -np.ones(4), np.zeros(4)], 0, "pass"),
        ("more_steps_gain", [-np.ones(10), np.r_[1.0, -np.ones(9)], np.zeros(4)], 0.1, "warn"),
        ("far_from_zero", [np.ones(4), np.zeros(4)], 0, "pass"),
        ("far_from_zero", [np.zeros(4), np.zeros(4)], 0.5, "fail"),
        ("far_from_zero", [np.r_[0.0, 0, 0, 1, 1], np.zeros(5)], 0.3, "warn"),
    ],
)
def test_attacked_sets_are_graded_as_stated(name, arrays, value, verdict):
    given = dict(zip(ARRAYS[name], arrays, strict=True))
    other = {"scores": given.pop("other", np.zeros(4))}
    names = ("control", "control_before", "control_after", "before", "again", "apart", "scores")
    zeros = dict.fromkeys(names, np.zeros(1)) | {"honesty": np.ones(1)}
    zeros |= {"path_stride": np.ones((1, 2))}
    flag = registry.get(name)().flag(of([{"sign": np.int8([1])} | zeros | given, other]))
    assert flag.value == pytest.approx(value, abs=1e-4)
    assert flag.verdict == verdict


@pytest.mark.parametrize(
    ("name", "case", "value", "verdict"),
    [
        ("tied_scores", {"clean": (np.arange(100.0), np.arange(50.0))}, 0, "pass"),
        (
            "tied_scores",
            {"clean": (np.arange(100.0), np.r_[0.0, 0.0, np.arange(1.0, 49.0)])},
            0.04,
            "pass",
        ),
        (
            "tied_scores",
            {"clean": (np.arange(100.0), np.r_[np.zeros(6), np.arange(1.0, 45.0)])},
            0.12,
            "warn",
        ),
        ("tied_scores", {"clean": (np.zeros(10), np.arange(50.0))}, 1, "fail"),
        ("rises_with_eps", {"aurocs": [0.9, 0.5, 0.2]}, 0, "pass"),
        ("rises_with_eps", {"aurocs": [0.9, 0.5, 0.53]}, 0.03, "warn"),
        ("rises_with_eps", {"aurocs": [0.9, 0.2, 0.4, 0.1]}, 0.2, "fail"),
        ("rises_with_eps", {"aurocs": [0.9]}, 0, "pass"),
        ("one_side_only", {"sides": ["inside", "both"]}, 0, "pass"),
        ("one_side_only", {"sides": ["inside", "outside"]}, 1, "warn"),
        ("too_good", {"aurocs": [0.85], "eps": 8 / 255}, 0.85, "warn"),
        ("too_good", {"aurocs": [0.85], "eps": 7 / 255}, 0.85, "pass"),
        ("too_good", {"aurocs": [0.79], "eps": 8 / 255}, 0.79, "pass"),
        ("too_good", {"aurocs": [0.85], "eps": 8 / 255, "norm": "l2"}, 0.85, "pass"),
    ],
)
def test_cases_are_graded_as_stated(name, case, value, verdict):
    flag = registry.get(name)().flag(of([{}, {}], **case))
    assert flag.value == pytest.approx(value)
    assert flag.verdict == verdict


def test_too_good_is_asked_of_rows_with_both_sides_attacked_only():
    assert registry.get("too_good")().flag(of([{}, {}], side="inside")) is None


def examined(tier=2, more_tier=1, **better):
    """A set that the attack left below zero scores of the other side, and what beat it."""
    ones = np.ones(32, np.int8)
    arrays = {"sign": ones, "tier": tier * ones, "more_tier": more_tier * ones[:8]}
    arrays |= {k: np.full(32, -1.0) for k in ("control", "control_after", "before", "scores")}
    arrays |= {k: np.full(8, -1.0) for k in ("few_after", "more", "blind")}
    for name, n in better.items():
        arrays[name][:n] = 1.0
    return arrays | {"scores": np.zeros(32), "direct": np.full(32, -2.0), "again": np.zeros(32)}


@pytest.mark.parametrize(
    ("arrays", "verdict"),
    [
        ({}, "pass"),
        ({"tier": 3}, "pass"),
        ({"tier": 1, "more_tier": 2}, "pass"),
        ({"tier": 1}, "warn"),
        ({"tier": 0}, "warn"),
        ({"more": 1}, "warn"),
        ({"blind": 1}, "warn"),
        ({"control": 1}, "warn"),
    ],
)
def test_evidence_of_a_thorough_attack_clears_suspicion(arrays, verdict):
    sets, facts = [examined(**arrays), examined()], {"aurocs": [0.99, 0.9], "eps": 8 / 255}
    for name in ("too_good", "transfer_beats_direct"):
        assert registry.get(name)().flag(of(sets, **facts)).verdict == verdict
    smaller = [{k: v for k, v in s.items() if k not in ("more", "blind")} for s in sets]
    case = of(smaller, **facts, largest=of(sets, **facts))
    assert registry.get("too_good")().flag(case).verdict == verdict
    assert registry.get("too_good")().flag(of(smaller, **facts)).verdict == "warn"


def test_a_certificate_close_to_the_number_clears_it():
    case = lambda **more: of([{}, {}], aurocs=[0.9], eps=8 / 255, **more)
    verdict = lambda **more: registry.get("too_good")().flag(case(**more)).verdict
    assert [verdict(), verdict(certified=0.7), verdict(certified=0.87)] == ["warn", "warn", "pass"]


@pytest.mark.parametrize(("noise", "verdict"), [(0.1, "pass"), (1.0, "warn"), (100.0, "warn")])
def test_a_declared_stochastic_detector_never_fails_for_differing_calls(noise, verdict):
    draw = np.random.default_rng(0)
    arrays = {"before": np.arange(32.0) / 9, "stochastic": np.ones(32), "scores": np.zeros(32)}
    arrays |= {k: arrays["before"] + noise * draw.normal(size=32) for k in ("apart", "again")}
    assert registry.get("two_calls_differ")().flag(of([arrays, {}])).verdict == verdict


def test_gradients_count_half_way_and_at_the_end_unless_the_image_is_done():
    places = lambda *dead: np.repeat(np.uint8([dead]), 32, axis=0)
    usual = {"sign": np.ones(32)}
    usual |= {k: np.zeros(32) for k in ("control", "control_before", "control_after")}
    usual |= {"zero_gradient": np.zeros(32), "honesty": np.ones(32)}
    verdict = lambda name, **more: registry.get(name)().flag(of([usual | more, {}])).verdict
    for dead in ((0, 1, 0), (0, 0, 1)):
        assert verdict("zero_gradient", path_dead=places(*dead)) == "fail"
        assert verdict("untrue_gradient", path_honesty=1.0 - places(*dead)) == "fail"
        done = {"enough": np.zeros(32)}
        assert verdict("zero_gradient", path_dead=places(*dead), **done) == "pass"
        assert verdict("untrue_gradient", path_honesty=1.0 - places(*dead), **done) == "pass"
        climbed = {"control_after": np.ones(32)}
        assert verdict("zero_gradient", path_dead=places(*dead), **climbed) == "pass"


def test_the_verdict_is_that_of_the_worst_flag():
    grades = [Flag("a", 0.0, v) for v in ("pass", "fail", "warn")]
    assert worst(grades) == "fail"
    assert worst(grades[::2]) == "warn"
    assert worst([]) == "pass"


@pytest.mark.parametrize("check", checks(), ids=lambda check: check.name)
def test_every_check_of_the_folder_is_explained(check):
    assert check.name in registry.names()
    assert 0 <= check.warn <= check.fail
    assert inspect.getdoc(type(check)).endswith(".")
    assert all(check.wording[:4])
    assert check.wording.meaning.endswith(".")
    assert check.wording.advice.endswith(".")
    assert not check.wording.because.endswith(".")


def test_the_checks_state_how_many_images_are_examined():
    text = " ".join(" ".join(type(check).__doc__.split()) for check in checks())
    assert f"the best of {QUERIES} random points" in text
    assert f"{WITHOUT_LIMIT.steps} steps of APGD move {FEW} of these" in text
    assert f"AUROC of {FEW} control images" in text
    assert f"with {BLIND.queries} queries" in text
    assert f"means over {DRAWS} calls" in text
    assert "a step of eps / {:g} nor one of eps / {:g}".format(*(1 / s for s in STRIDES)) in text
    assert f"in {STEPS} steps" in text
    assert 2 * len(checks()) <= TESTS


def test_limits_and_order_of_the_flags_stay():
    never = math.inf
    limits = {
        "zero_gradient": (0.05, 0.10),
        "untrue_gradient": (0.10, 0.25),
        "rough_score": (0.15, 0.25),
        "many_optima": (0.25, 0.40),
        "custom_backward": (0.0, never),
        "random_search_wins": (0.02, 0.10),
        "black_box_gains": (0.05, 0.15),
        "left_the_threat_model": (0.0, 0.0),
        "two_calls_differ": (0.001, 0.05),
        "score_drifts": (0.001, 0.05),
        "batch_matters": (0.001, 0.05),
        "transfer_beats_direct": (0.10, never),
        "base_only": (0.10, 0.50),
        "lost_by_rounding": (0.10, never),
        "more_steps_gain": (0.05, 0.15),
        "far_from_zero": (0.25, 0.40),
        "tied_scores": (0.02, 0.10),
        "rises_with_eps": (0.01, 0.05),
        "one_side_only": (0.0, never),
        "too_good": (0.80, never),
    }
    assert [(c.name, (c.warn, c.fail)) for c in checks()] == list(limits.items())


# units and infinities

N_CASE = 40
SCORES = ("scores", "before", "alone", "direct", "later")  # of every image
CONTROL_SCORES = (
    *("control", "control_before", "control_after", "control_best", "rounded", "apart", "again"),
    *("few_after", "more", "blind", "far", "far_start"),
)
SLOPES = ("path_dead", "path_honesty", "path_stride", "honesty")


def random_set(draw, sign):
    """An attacked set that no attack made: its gains, wins and faults are random."""
    before = draw.normal(size=N_CASE)
    near = lambda size: before + size * draw.normal(size=N_CASE)
    moved = lambda: before + sign * draw.gamma(1.0, size=N_CASE) * draw.integers(0, 2)
    arrays = {name: moved() for name in (*SCORES, *CONTROL_SCORES)}
    noise = 10.0 ** draw.uniform(-5, 0)
    arrays |= {
        "before": before,
        "control_before": before,
        "later": near(noise * draw.integers(0, 2)),
    }
    arrays |= {"apart": near(noise), "again": near(noise * draw.integers(0, 2))}
    arrays |= {name: draw.uniform(-0.5, 1.5, size=(N_CASE, 2)) for name in SLOPES}
    arrays |= {
        "honesty": draw.uniform(0, 2, size=N_CASE),
        "zero_gradient": draw.integers(0, 2, N_CASE),
    }
    arrays |= {"path_dead": draw.integers(0, 2, (N_CASE, 3)), "left": np.zeros(N_CASE)}
    arrays |= {"regained": draw.uniform(0.6, 1, (N_CASE, 2))}
    ones = np.ones(N_CASE, np.int8)
    arrays |= {"sign": sign * ones, "stochastic": draw.integers(0, 2) * ones, "more_tier": 2 * ones}
    arrays |= {"custom_backward": ones, "tier": draw.integers(0, 4) * ones}
    return arrays | {"enough": np.full(N_CASE, draw.choice([np.inf, draw.normal()]))}


def random_case(seed):
    draw = np.random.default_rng(seed)
    inside, outside = random_set(draw, 1), random_set(draw, -1)
    return ranked(
        [inside, outside], tuple(s["before"] + draw.integers(0, 2) for s in (inside, outside))
    )


def ranked(sets, clean):
    """The case of these sets, whose AUROCs follow from them."""
    before = auroc(inside=clean[0], outside=clean[1])
    after = auroc(inside=sets[0]["scores"], outside=sets[1]["scores"])
    return of(sets, clean=clean, aurocs=[before, after])


def in_another_unit(case, scale, offset):
    """Every score s of the case as scale * (s + offset)."""
    turned = lambda scores: scale * (scores + offset)

    def one(arrays):
        scores = {k: turned(v) for k, v in arrays.items() if k in (*SCORES, *CONTROL_SCORES)}
        sign = arrays["sign"][0]
        return arrays | scores | {"enough": sign * turned(sign * arrays["enough"])}

    return ranked([one(s) for s in case.sets], tuple(map(turned, case.clean)))


@pytest.mark.parametrize("check", checks(), ids=lambda check: check.name)
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    power=st.floats(-20, 20),
    offset=st.floats(-100, 100),
)
def test_no_check_depends_on_the_unit_of_the_scores(check, seed, power, offset):
    case = random_case(seed)
    flag, same = check.flag(case), check.flag(in_another_unit(case, 10.0**power, offset))
    assert same.value == pytest.approx(flag.value, rel=1e-6, abs=1e-9)
    assert same.verdict == flag.verdict


@pytest.mark.parametrize("check", checks(), ids=lambda check: check.name)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), sign=st.sampled_from([-1, 1]))
def test_infinite_scores_of_a_few_images_leave_every_check_a_number(check, seed, sign):
    case, draw = random_case(seed), np.random.default_rng(seed)
    for arrays in (*case.sets, {"clean": case.clean[0]}):
        for name in draw.permutation(list(arrays))[:6]:
            if name in (*SCORES, *CONTROL_SCORES, "clean"):
                arrays[name][draw.integers(0, N_CASE, 3)] = sign * np.inf
    flag = check.flag(ranked(case.sets, case.clean))
    assert math.isfinite(flag.value)
    assert flag.verdict in ("pass", "warn", "fail")


def test_a_masked_side_is_not_diluted_by_the_other():
    usual = {"left": np.zeros(4, np.uint8), "honesty": np.ones(4), "sign": np.ones(4, np.int8)}
    usual |= {k: np.zeros(4) for k in ("control", "control_before", "control_after")}
    dead = usual | {"zero_gradient": np.ones(4, np.uint8)}
    alive = usual | {"zero_gradient": np.zeros(400, np.uint8)}
    found = set_flags([dead, alive])
    assert (found["zero_gradient"].value, found["zero_gradient"].verdict) == (1, "fail")
