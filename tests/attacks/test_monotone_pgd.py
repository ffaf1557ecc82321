"""MonotonePGD against plain loops: steps, starts, and what it reaches."""

import numpy as np
import pytest
import torch
from bumpy import Asked, allowed, bumpy, images, slope, uphill, value

from rood.attacks import APGD, PGD, Goal, MonotonePGD
from rood.errors import InputError
from rood.seeds import generator
from rood.threat import L2, Linf

THREATS = pytest.mark.parametrize("threat", [Linf(0.1), L2(1.0)], ids=str)


def reference(x, start, eps, norm, steps):
    """One image in plain loops, from the paper: go up, or stay and take half the step."""
    at, step, velocity, fell = allowed(start, x, eps, norm), 2 * eps, np.zeros_like(x), 0
    for _ in range(steps):
        push = 0.9 * velocity + slope(at) / np.abs(slope(at)).sum()
        ahead = allowed(at + step * uphill(push, norm), x, eps, norm)
        if value(ahead) >= value(at):
            at, velocity, step = ahead, push, min(1.1 * step, 2 * eps)
        else:
            velocity, step, fell = np.zeros_like(x), step / 2, fell + 1
    return at, fell


@THREATS
def test_monotone_pgd_does_what_plain_loops_do(threat):
    x = images()
    start = (x + 0.05 * torch.randn(x.shape, generator=generator(1), dtype=x.dtype)).clamp(0, 1)
    attack = MonotonePGD(steps=40, restarts=1, first_step=2.0)
    found = attack(Goal(bumpy, starts=(start,)), x, threat, generator(0))
    falls = 0
    for one, begin, got in zip(x, start, found, strict=True):
        one, begin = one.flatten().numpy(), begin.flatten().numpy()
        want, fell = reference(one, begin, threat.eps, threat.norm, 40)
        falls += fell
        np.testing.assert_allclose(got.flatten().numpy(), want, rtol=0, atol=1e-9)
    assert 20 < falls < 180  # of 200 steps: both branches were taken


@THREATS
def test_monotone_pgd_begins_without_contrast_then_close_to_x_then_anywhere(threat):
    x, goal = images(), Asked(bumpy)
    MonotonePGD(steps=3, restarts=4)(goal, x, threat, generator(0))
    grey, near, *far = goal.images[:16:4]
    mean = x.mean(dim=(1, 2, 3), keepdim=True)
    torch.testing.assert_close(grey, threat.project(mean.expand_as(x), x))
    assert ((grey - mean).abs() <= (x - mean).abs() + 1e-12).all()
    assert 5e-5 < (near - x).std() < 2e-4
    assert all(threat.size(f - x).min() > threat.eps / 2 for f in far)
    assert not torch.equal(*far)


def test_monotone_pgd_begins_at_the_goals_own_starts_first():
    x, given = images(), (images() * 0.9).clamp(0, 1)
    asked = Asked(bumpy)
    threat = Linf(0.1)
    MonotonePGD(steps=3, restarts=2)(Goal(asked, starts=(given,)), x, threat, generator(0))
    first, second = asked.images[:8:4]
    torch.testing.assert_close(first, threat.project(given, x))
    mean = x.mean(dim=(1, 2, 3), keepdim=True)
    torch.testing.assert_close(second, threat.project(mean.expand_as(x), x))


def test_monotone_pgd_leaves_a_start_that_has_no_value():
    x = images()
    total = lambda x: x.flatten(1).sum(dim=1) - 100  # below 0, which NaN must not count as
    start = total(x)
    broken = lambda v: torch.where(total(v) < start, torch.nan, total(v))  # grey may be below
    found = MonotonePGD(steps=10)(broken, x, Linf(0.1), generator(0))
    assert (total(found) > start).all()


def test_a_quadratic_score_is_hidden_by_walking_straight_to_the_nearest_mean():
    g = generator(0, "means")
    means = 0.3 + 0.4 * torch.rand(3, 3, 4, 4, generator=g, dtype=torch.float64)
    k = torch.arange(8) % 3
    away = torch.randn(8, 3, 4, 4, generator=g, dtype=torch.float64)
    x, eps = means[k] + 0.5 * L2(1.0).ascent(away), 0.3
    goal = lambda x: -(x[:, None] - means).flatten(2).square().sum(dim=2).amin(dim=1)
    want = means[k] + (1 - eps / 0.5) * (x - means[k])
    for attack, near in ((PGD(), 0.15), (APGD(), 0.05), (MonotonePGD(), 0.01)):
        found = attack(goal, x, L2(eps), generator(0))
        assert L2(eps).size(found - want).max() < near * eps, attack
        assert ((goal(found) - goal(x)) / (goal(want) - goal(x))).min() > 0.99, attack


def test_monotone_pgd_stops_at_a_mean_that_it_can_reach():
    x = images()
    mean = (x + 0.01).clamp(0, 1)
    goal = lambda x: -(x - mean).flatten(1).norm(dim=1)
    found = MonotonePGD(steps=100, restarts=1)(goal, x, L2(1.0), generator(0))
    assert L2(1.0).size(found - mean).max() < 1e-6


@pytest.mark.parametrize("options", [{"steps": 0}, {"restarts": 0}])
def test_an_attack_that_could_not_try_anything_is_refused(options):
    with pytest.raises(InputError, match="expected"):
        MonotonePGD(**options)
