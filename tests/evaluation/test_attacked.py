"""One side attacked through the score that judges."""

import doctest

import pytest
import torch

from rood.attacks import PGD, WorstOf
from rood.detectors import MSP
from rood.evaluation import attacked
from rood.evaluation.attacked import attacked_scores
from rood.threat import Linf

BALL = Linf(0.1)


@pytest.mark.parametrize(("side", "sign"), [("inside", 1), ("outside", -1)])
def test_each_side_moves_towards_the_other_within_the_threat(world, side, sign):
    detector, x = MSP(world.model), getattr(world, side)
    with torch.no_grad():
        before = detector.score(x)
    found = attacked_scores(detector, x, side, BALL, PGD(steps=5), purpose=("test",))
    assert BALL.contains(found.images, x).all()
    assert (sign * (found.scores - before) >= 0).all()
    with torch.no_grad():
        assert torch.equal(found.scores, detector.score(found.images))


@pytest.mark.parametrize("side", ["inside", "outside"])
def test_an_image_past_all_of_the_other_side_is_left_alone(world, side):
    detector, x = MSP(world.model), getattr(world, side)
    passed = detector.score(x).detach().sort().values[len(x) // 2]
    done = (detector.score(x) > passed) if side == "inside" else (detector.score(x) < passed)
    suite = WorstOf(tier="quick")
    found = attacked_scores(detector, x, side, BALL, suite, past=float(passed))
    assert done.any()
    assert torch.equal(found.images[done], x[done])
    assert not torch.equal(found.images[~done], x[~done])


def test_the_batch_size_does_not_change_the_scores(world):
    detector = MSP(world.model)
    whole, apart = (
        attacked_scores(detector, world.outside[:6], "outside", BALL, PGD(steps=3), batch_size=n)
        for n in (6, 2)
    )
    assert torch.allclose(whole.scores, apart.scores, atol=1e-5)


def test_the_example_of_the_docstring_runs():
    assert doctest.testmod(attacked).failed == 0
