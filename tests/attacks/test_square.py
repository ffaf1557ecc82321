"""Square: what it must find without a gradient."""

import pytest
import torch
from bumpy import Asked, images

from rood import data
from rood.attacks import PGD, Goal, RandomSearch, Square
from rood.detectors import MSP
from rood.errors import InputError
from rood.goals import look_in, look_out
from rood.models import zoo
from rood.seeds import generator
from rood.threat import L2, Linf

THREATS = pytest.mark.parametrize("threat", [Linf(0.1), L2(1.0)], ids=str)


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


@pytest.mark.parametrize("options", [{"queries": 0}, {"share": 0.0}, {"share": 1.5}])
def test_an_attack_that_could_not_try_anything_is_refused(options):
    with pytest.raises(InputError, match="expected"):
        Square(**options)
