"""What is measured of an attack, and on which images."""

import numpy as np
import pytest
import torch
from toy_audit import measured, toy_case

from rood.attacks import PGD
from rood.attacks.base import Goal
from rood.data.base import ImageSet
from rood.detectors import MSP
from rood.detectors.base import OutputDetector
from rood.evaluation.probes import FEW, NUDGES, WITHOUT_LIMIT, Examination
from rood.goals import look_in
from rood.numerics.softmax import margin
from rood.seeds import generator
from rood.threat import Linf


@pytest.fixture(scope="module")
def case():
    return toy_case()


class Cut(OutputDetector):
    """No gradient at all."""

    def score_outputs(self, out):
        return margin(out.logits).detach()


def examination(detector, goal=None, attack=None):
    draws = lambda purpose: generator(0, purpose)
    return Examination(detector, goal or look_in(detector), attack or PGD(), Linf(0.05), draws)


def test_a_missing_gradient_is_a_dead_one(case):
    """Where the attack continues without one, as worst_of does."""
    x = case.inside[0][:6]
    exam = examination(Cut(case.model))
    assert exam.gradient(x, torch.arange(3))["zero_gradient"].tolist() == [1] * 6
    further = exam.further(x, x, case.outside["grey"][:6])
    assert {k: len(v) for k, v in further.items()} == {"more": 6, "far": 6, "far_start": 6}


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

    honesty = lambda goal: examination(MSP(case.model), goal).gradient(x, torch.arange(4))[
        "honesty"
    ]
    torch.testing.assert_close(honesty(bent), torch.ones(4), atol=0.05, rtol=0)
    assert ((honesty(turned) - 1).abs() > 0.25).all()


def test_a_batch_without_control_images_is_no_error(case):
    x, none = case.inside[0][:4], case.inside[0][:0]
    exam = examination(MSP(case.model))
    measured = exam.usual(none, none) | exam.further(none, none, none)
    assert {len(v) for v in measured.values()} == {0}
    gradient = exam.gradient(x, torch.arange(0))
    assert (len(gradient["zero_gradient"]), len(gradient["honesty"])) == (4, 0)


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
