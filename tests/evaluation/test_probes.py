"""What is measured of an attack, and on which images."""

import copy

import numpy as np
import pytest
import torch
from toy_audit import measured

from rood.attacks import APGD, PGD, RandomSearch, WorstOf
from rood.attacks.base import Goal
from rood.data.base import ImageSet
from rood.detectors import KNN, MSP
from rood.detectors.base import Detector, OutputDetector
from rood.evaluation.checks.many_optima import NEARLY
from rood.evaluation.probes import (
    DRAWS,
    FEW,
    NUDGES,
    WITHOUT_LIMIT,
    Examination,
    continued_by,
    recovery,
)
from rood.evaluation.tasks import metered
from rood.goals import look_in, look_out
from rood.numerics.softmax import margin
from rood.seeds import generator
from rood.threat import L2, Linf


class Cut(OutputDetector):
    """No gradient at all."""

    def score_outputs(self, out):
        return margin(out.logits).detach()


def examination(detector, goal=None, attack=None, threat=None):
    draws = lambda purpose: generator(0, purpose)
    threat = threat or Linf(0.05)
    return Examination(detector, goal or look_in(detector), attack or PGD(), threat, draws)


def test_a_missing_gradient_is_a_dead_one(case):
    """Where the attack continues without one, as worst_of does."""
    x = case.inside[0][:6]
    exam = examination(Cut(case.model))
    gradient = exam.gradient(x, x, torch.arange(3))
    assert gradient["zero_gradient"].tolist() == [1] * 6
    assert gradient["path_dead"].tolist() == [[1] * 3] * 3
    further = exam.further(x, x, case.outside["grey"][:6])
    assert {len(v) for v in further.arrays.values()} == {6}
    assert further.images.keys() == {"more", "blind"}


def test_what_is_measured_does_not_depend_on_the_batch_size(case):
    few = [MSP(case.model), case.inside[0][:12], case.outside["grey"][:12]]
    by_size = [measured(*few, attack=PGD(steps=4), batch_size=size) for size in (64, 5)]
    for one, other in zip(*by_size, strict=True):
        assert one.keys() == other.keys()
        for key in one:
            np.testing.assert_allclose(one[key], other[key], rtol=1e-3, atol=1e-3, err_msg=key)


def test_the_expensive_probes_climb_from_the_attacked_image_and_from_the_other_side(case):
    climbed = []
    detector, x, start = MSP(case.model), case.inside[0][:4], case.outside["grey"][:4]

    def watched(x):
        if x.requires_grad:
            climbed.append(x.detach())
        return detector.score_images(x)

    exam = examination(detector, Goal(watched), PGD(steps=12))
    exam.further(x, found := (x + 0.04).clamp(0, 1), start)
    assert any(c.shape == found.shape and torch.allclose(c, found) for c in climbed)
    torch.testing.assert_close(climbed[-WITHOUT_LIMIT.steps], start)


def test_an_attack_is_continued_by_a_longer_one(case):
    assert continued_by(PGD()) == WorstOf(tier="quick") == continued_by(WorstOf(tier="full"))
    assert continued_by(WorstOf(tier="quick")) == WorstOf(tier="standard")
    assert continued_by(RandomSearch(queries=3)) == RandomSearch(queries=3)
    x = case.inside[0][:2]
    further = examination(MSP(case.model), attack=WorstOf(tier="quick")).further(x, x, x)
    assert further.arrays["more_tier"].tolist() == [2, 2]


class Rippled(OutputDetector):
    """A ripple far below the budget, whose slope hides that of the score."""

    def score_outputs(self, out):
        s = margin(out.logits)
        return s + 1e-4 * torch.sin(1e7 * s.double()).to(s.dtype)


def test_a_ripple_is_true_at_the_point_and_rough_over_a_step(case):
    x = case.inside[0][:8].double()
    model = copy.deepcopy(case.model).double()
    for detector, rough in ((MSP(model), False), (Rippled(model), True)):
        slopes = examination(detector).gradient(x, x, torch.arange(8))["path_stride"]
        assert slopes.shape == (8, 2)
        assert bool((slopes < 0.1).float().mean() > 0.8) == rough


class Lattice(Detector):
    """A smooth penalty with the budget as its period, against the attacker."""

    def score_images(self, x):
        return margin(self.model(x).logits) - (20 * torch.pi * x).sin().square().flatten(1).sum(1)


@pytest.mark.parametrize("threat", [Linf(0.05), L2(1.0)])
def test_a_score_with_a_period_below_the_budget_comes_back_and_an_honest_one_does_not(case, threat):
    x = case.inside[0][:8]

    def regained(detector):
        exam = examination(detector, look_out(detector), APGD(steps=20), threat)
        found = exam.attack(exam.goal, x, threat, generator(0))
        return exam.way_back(x, found)["regained"].amin(dim=1)

    assert (regained(Lattice(case.model)) > NEARLY).all()
    for honest in (MSP(case.model), KNN(case.model, k=1).fit(case.train)):
        assert (regained(honest) < 0.5).all()
    assert (regained(Jittery(case.model)) == 0).all()


def test_what_is_regained_is_a_share_of_the_fall_or_of_the_gain():
    valley, slope, rise = [4.0, 0, 3, 1], [4.0, 3, 1, 0], [4.0, 5, 6, 5]
    rows, zero = torch.tensor([valley, slope, rise]), torch.zeros(3)
    assert recovery(rows, zero).tolist() == [0.75, 0, 0]
    assert recovery(rows, zero + 12).tolist() == [0.25, 0, 0]
    torch.testing.assert_close(recovery(1e-20 * rows, zero), torch.tensor([0.75, 0, 0]))
    assert recovery(1e6 + 0.1 * rows, zero).amax() < 0.1  # no more than rounding


def test_what_is_regained_of_an_infinite_fall_is_nothing():
    inf, nan = torch.inf, torch.nan
    rows = torch.tensor([[inf, 0, inf, 1], [1, -inf, 1, 1], [1, nan, 0, 1]])
    assert recovery(rows, torch.zeros(3)).isfinite().all()


class OwnBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, s):
        return s.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Customised(OutputDetector):
    def score_outputs(self, out):
        return OwnBackward.apply(margin(out.logits))


class Hooked(OutputDetector):
    def score_outputs(self, out):
        s = margin(out.logits)
        if s.requires_grad:
            s.register_hook(lambda gradient: gradient)
        return s


@pytest.mark.parametrize("detector", [Customised, Hooked])
def test_a_backward_pass_of_somebodys_own_is_noted(case, detector):
    x, some = case.inside[0][:4], torch.arange(2)
    custom = lambda d: examination(d).gradient(x, x, some)["custom_backward"].tolist()
    with metered(case.model):  # whose hook is rood's own
        assert custom(MSP(case.model)) == [0, 0]
        assert custom(detector(case.model)) == [1, 1]


class Jittery(OutputDetector):
    stochastic = True

    def score_outputs(self, out):
        return margin(out.logits) + torch.randn(len(out.logits))


def test_a_stochastic_score_is_measured_by_its_mean(case):
    x = case.inside[0][:20]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        error = examination(Jittery(case.model)).score(x) - MSP(case.model).score(x)
    assert 0.5 < error.std() * DRAWS**0.5 < 2


def test_a_slope_that_bends_within_the_longest_step_is_true_and_a_turned_one_is_not(case):
    x = torch.full_like(case.inside[0][:4], 0.5)
    size = x[0].numel() ** 0.5
    along = lambda x: (x - 0.5).flatten(1).sum(dim=1) / size
    wave = 1 / (NUDGES[0] * size)  # the longest step goes 1.4 radians far
    bent = Goal(lambda x: (1.4 * wave * along(x)).sin())
    turned = Goal(lambda x: 2 * along(x).detach() - along(x))

    measured = lambda goal: examination(MSP(case.model), goal).gradient(x, x, torch.arange(4))
    honesty = lambda goal: measured(goal)["honesty"]
    torch.testing.assert_close(honesty(bent), torch.ones(4), atol=0.05, rtol=0)
    assert ((honesty(turned) - 1).abs() > 0.25).all()


def test_a_batch_without_control_images_is_no_error(case):
    x, none = case.inside[0][:4], case.inside[0][:0]
    exam = examination(MSP(case.model))
    usual, further = exam.usual(none), exam.further(none, none, none)
    assert {len(v) for v in (usual.arrays | further.arrays).values()} == {0}
    assert not usual.images | further.images
    gradient = exam.gradient(x, x, torch.arange(0))
    assert (len(gradient["zero_gradient"]), len(gradient["honesty"])) == (4, 0)
    assert gradient["path_dead"].shape == (0, 3)


def test_a_few_images_of_the_other_side_are_enough(case):
    few = ImageSet("few", case.outside["grey"][:3])
    inside, _ = measured(MSP(case.model), *2 * [case.inside[0]], other_side=few)
    assert len(inside["far"]) == FEW
    assert len(np.unique(inside["far_start"].round(3))) == 3


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
