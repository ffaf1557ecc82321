"""PGD with the settings of ALOE's attack, as written."""

import copy
import math
from dataclasses import replace

import pytest
import torch

from rood.attacks import PGD
from rood.goals import misclassify
from rood.seeds import generator
from rood.testing import attack_checks
from rood.threat import L2, Linf

LEVELS = (torch.arange(256) / 255).view(1, 1, 16, 16)  # one image with every 8-bit value


def test_aloes_preset_is_the_published_one():
    written = PGD.aloe()
    assert (written.steps, written.step, written.keep) == (10, 1 / 255, "last")
    assert written.restarts == 1
    assert written.random_start


@pytest.mark.parametrize("eps", [1, 4, 8])
def test_aloes_steps_take_every_pixel_to_the_border_of_the_ball(eps):
    attack = replace(PGD.aloe(), random_start=False)
    end = attack(lambda x: x.flatten(1).sum(dim=1), LEVELS, Linf(eps / 255), generator(0))
    moved = (255 * (end - LEVELS)).round().flatten()
    assert (moved[: 256 - eps] == eps).all()


def test_the_start_is_really_random():
    seen = []

    def goal(x):
        seen.append(x.detach())
        return x.flatten(1).sum(dim=1)

    PGD.aloe()(goal, LEVELS, Linf(1 / 255), generator(0))
    inner = (255 * (seen[0] - LEVELS)).flatten()[1:-1]
    assert (inner.abs() > 0).all()
    assert inner.std() == pytest.approx(1 / math.sqrt(3), abs=0.05)


def test_the_last_iterate_swings_around_the_best():
    """With steps as large as the ball it ends on either side of an optimum within."""
    x = 0.1 + 0.8 * torch.rand(8, 3, 2, 2, generator=generator(0, "images"))
    x = x.double()
    goal = lambda v: -(v - x - 0.3 / 255).square().flatten(1).sum(dim=1)
    last, best = (
        goal(replace(PGD.aloe(), keep=keep, compare=False)(goal, x, Linf(1 / 255), generator(0)))
        for keep in ("last", "best")
    )
    assert (best >= last).all()
    assert (best > last).any()


def test_aloes_preset_keeps_the_contract_of_an_attack(world):
    for check in attack_checks(PGD.aloe):
        # ten steps of 1/255 do not cross a ball of 8/255 from its far side
        if check.__name__ != "check_reaches_the_optimum_of_a_linear_goal":
            check(PGD.aloe, world.copy())


def test_misclassify_is_not_stopped_by_large_logits(world):
    x = world.inside
    with torch.no_grad():
        y = world.model(x).logits.argmax(dim=1)
    sharp = copy.deepcopy(world.model)
    with torch.no_grad():
        sharp.head.weight *= 50
        sharp.head.bias *= 50
    left = []
    for model in (world.model, sharp):
        found = PGD(steps=20)(misclassify(model, y), x, L2(1.0), generator(0))
        with torch.no_grad():
            left.append((model(found).logits.argmax(dim=1) == y).float().mean().item())
    assert left[1] == pytest.approx(left[0], abs=0.05)
