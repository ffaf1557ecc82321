"""MonotonePGD against plain loops, Square against what it must do without a gradient."""

import numpy as np
import pytest
import torch

from rood import data
from rood.attacks import APGD, PGD, Goal, MonotonePGD, RandomSearch, Square
from rood.detectors import MSP
from rood.errors import InputError
from rood.goals import look_in, look_out
from rood.models import zoo
from rood.seeds import generator
from rood.threat import L2, Linf

THREATS = pytest.mark.parametrize("threat", [Linf(0.1), L2(1.0)], ids=str)


def images(n=5, size=4):
    g = generator(0, "images")
    return 0.1 + 0.8 * torch.rand(n, 3, size, size, generator=g, dtype=torch.float64)


class Asked:
    """A goal that remembers every image it was asked about, and whose values may be made up."""

    def __init__(self, goal):
        self.goal, self.images = goal, []

    def __call__(self, x):
        self.images.append(x.detach().clone())
        return self.goal(x)


# MonotonePGD


PHASE = torch.arange(48, dtype=torch.float64)


def bumpy(x):
    """Curved enough that steps fail, with pixels that interact."""
    flat = x.flatten(1)
    return (25 * flat + PHASE).sin().sum(dim=1) - 3 * (flat.sum(dim=1) - 24).square() / 48


def reference(x, start, eps, norm, steps):
    """One image in plain loops, from the paper: go up, or stay and take half the step."""
    phase = PHASE.numpy()

    def value(v):
        return np.sin(25 * v + phase).sum() - 3 * (v.sum() - 24) ** 2 / 48

    def slope(v):
        return 25 * np.cos(25 * v + phase) - 6 * (v.sum() - 24) / 48

    def allowed(v):
        delta = v - x
        if norm == "linf":
            delta = np.minimum(np.maximum(delta, -eps), eps)
        elif np.linalg.norm(delta) > eps:
            delta = delta * eps / np.linalg.norm(delta)
        return np.minimum(np.maximum(x + delta, 0), 1)

    at, step, velocity, fell = allowed(start), 2 * eps, np.zeros_like(x), 0
    for _ in range(steps):
        push = 0.9 * velocity + slope(at) / np.abs(slope(at)).sum()
        unit = np.sign(push) if norm == "linf" else push / np.linalg.norm(push)
        ahead = allowed(at + step * unit)
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


# Square


@pytest.fixture(scope="module")
def digits():
    detector = MSP(zoo.load("digits-ce"))
    inside = data.load("digits:inside", limit=20)
    outside = data.load("digits:near", limit=20, shape=inside.shape)
    return [
        (look_out(detector), inside.pixels()),
        (look_in(detector), outside.pixels()),
    ]


@pytest.mark.parametrize("threat", [Linf(0.1), L2(1.0)], ids=str)
def test_square_beats_random_search_at_equal_queries(digits, threat):
    for goal, x in digits:
        with torch.no_grad():
            gain = lambda a, goal=goal, x=x: goal(a(goal, x, threat, generator(0))) - goal(x)
            squares, points = gain(Square(queries=150)), gain(RandomSearch(queries=150))
        assert (squares > points).double().mean() >= 0.95
        assert squares.mean() > 1.5 * points.mean()


def test_square_climbs_where_the_gradient_is_zero(digits):
    for goal, x in digits:
        steps = lambda x, goal=goal: (8 * goal(x)).round() / 8
        gain = lambda a, steps=steps, x=x: (
            steps(a(steps, x, Linf(0.1), generator(0))) - steps(x)
        ).detach()
        blind = gain(PGD(steps=10, random_start=False))
        assert (blind == 0).all()
        assert (gain(Square(queries=150)) > 0).double().mean() >= 0.95


def worse_and_worse():
    """A goal that only ever takes the first image, so that all others are seen as proposed."""
    calls = iter(range(10**6))
    return lambda x: torch.full((len(x),), -float(next(calls)), dtype=x.dtype)


def test_square_begins_with_stripes_and_proposes_ever_smaller_squares():
    x, eps = 0.2 + 0.6 * images(6, size=16), 0.1
    goal = Asked(worse_and_worse())
    Square(queries=60)(goal, x, Linf(eps), generator(0))
    start, *proposed = [v - x for v in goal.images[:60]]
    assert torch.allclose(start.abs(), torch.full_like(start, eps))
    assert torch.allclose(start, start[:, :, :1].expand_as(start))  # vertical
    sides, corners = [], set()
    for delta in proposed:
        assert torch.allclose(delta.abs(), torch.full_like(delta, eps))
        changed = (delta - start).abs() > eps  # (b, 3, 16, 16)
        assert changed.flatten(1).any(dim=1).all(), "a question was wasted"
        boxes = [c.any(dim=0).nonzero() for c in changed]
        sides.append(max(int((b.amax(dim=0) - b.amin(dim=0)).max()) + 1 for b in boxes))
        corners |= {tuple(b.amin(dim=0).tolist()) for b in boxes}
        for image, box, where in zip(delta, boxes, changed, strict=True):
            (top, left), (bottom, right) = box.amin(dim=0), box.amax(dim=0) + 1
            for channel, moved in zip(image, where, strict=True):
                if moved.any():  # one height within the square, the stripes outside
                    inner = channel[top:bottom, left:right]
                    assert inner.max() - inner.min() < 1e-12
    assert sides[0] == round((0.8 / 4 * 16 * 16) ** 0.5)  # halved twice before 1/60 is spent
    assert sides == sorted(sides, reverse=True)
    assert sides[-1] == 1
    assert len(corners) > 100


def test_square_goes_on_from_the_goals_own_start():
    x = images(size=16)
    start = (x + 0.05).clamp(0, 1)  # inside the ball, where no square would put a pixel
    asked = Asked(worse_and_worse())
    found = Square(queries=40)(Goal(asked, starts=(start,)), x, Linf(0.1), generator(0))
    first, *proposed = asked.images[:40]
    torch.testing.assert_close(first, start)
    last = proposed[-1]
    assert ((last != start).flatten(1).sum(dim=1) <= 3).all()  # a pixel of each channel
    torch.testing.assert_close(found, start)


@THREATS
def test_square_fills_the_ball_it_is_given(threat):
    x = 0.3 + 0.4 * images(size=8)
    w = torch.randn(x.shape, generator=generator(0), dtype=x.dtype)
    goal = lambda v: ((v - x) * w).flatten(1).sum(dim=1)
    found = Square(queries=1000)(goal, x, threat, generator(0))
    dual = w.flatten(1).norm(p=1 if threat.norm == "linf" else 2, dim=1)
    assert (goal(found) > 0.75 * threat.eps * dual).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: MonotonePGD(steps=0),
        lambda: MonotonePGD(restarts=0),
        lambda: Square(queries=0),
        lambda: Square(share=0.0),
        lambda: Square(share=1.5),
    ],
)
def test_an_attack_that_could_not_try_anything_is_refused(make):
    with pytest.raises(InputError, match="expected"):
        make()
