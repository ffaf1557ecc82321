"""The work that attacks are expected to take, against what they take."""

from dataclasses import dataclass

import pytest
import torch

from rood.attacks import PGD, WorstOf
from rood.attacks.base import Attack
from rood.detectors import MSP, ODIN
from rood.evaluation.effort import CALL, Counts, Pace, of_attack, passes, usual
from rood.testing import toy_world


def test_passes_are_counted_not_guessed():
    assert 20 <= passes(PGD(steps=20), 0) <= 22
    assert passes(PGD(steps=20), 1) == 2 * passes(PGD(steps=20), 0)
    quick, standard = (passes(WorstOf(tier=t), 0) for t in ("quick", "standard"))
    assert 30 < quick < standard


@dataclass(frozen=True, kw_only=True)
class Picky(Attack):
    """Neither hashable nor content with any goal."""

    sizes: list[int]
    steps: int = 7

    def climb(self, goal, x, threat, noise):
        raise RuntimeError("expected photos")


def test_an_attack_that_cannot_be_counted_counts_as_its_steps():
    assert passes(Picky(sizes=[1, 2]), 0) == 7


def test_a_pass_costs_something_however_few_its_images_are():
    pace = Pace(call=8.0, image=1.0)
    assert (pace.of(0), pace.of(1), pace.of(10)) == (0.0, 9.0, 18.0)


def test_a_gradient_of_a_detector_costs_what_its_score_costs_and_the_way_back():
    model = toy_world().model
    assert usual(MSP(model)) == Pace(3 * CALL, 3.0)
    assert usual(ODIN(model)).image == 6.0


@pytest.mark.parametrize("part", ["attacked", "controls", "few"])
def test_every_part_of_a_task_costs_more_with_more_images(part):
    some = Counts(40, 10, 4)
    more = some._replace(**{part: 2 * getattr(some, part)})
    pace = Pace(8.0, 1.0)
    assert of_attack(pace, PGD(), 0, more) > of_attack(pace, PGD(), 0, some)
    assert not torch.isnan(torch.tensor(of_attack(pace, PGD(), 0, Counts(1, 0, 0))))
