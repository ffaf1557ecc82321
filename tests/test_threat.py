"""Where an attack may go: written, read, projected to and drawn from."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from rood.attacks import PGD
from rood.errors import InputError, UnknownNameError
from rood.seeds import Noise, generator
from rood.threat import L2, Linf, parse


def images():
    return torch.rand(6, 3, 8, 8, generator=generator(0, "images"))


@given(st.floats(0, 1), st.sampled_from([Linf, L2]))
def test_a_threat_reads_back_as_it_was_written(eps, norm):
    again = parse(str(norm(eps)))
    assert type(again) is norm
    assert again.eps == pytest.approx(eps, rel=1e-12)


@pytest.mark.parametrize(
    ("threat", "text"),
    [
        (Linf(8 / 255), "linf:8/255"),
        (Linf(3 * (1 / 255)), "linf:3/255"),
        (Linf(0.0), "linf:0"),
        (L2(0.5), "l2:0.5"),
        (L2(1.0), "l2:1"),
        (Linf(0.123456789), "linf:0.123456789"),
    ],
)
def test_a_threat_is_written_as_people_write_it(threat, text):
    assert str(threat) == text


def test_a_bare_number_is_a_threat_in_l_infinity():
    assert parse(" 8/255 ") == Linf(8 / 255)
    assert parse("L2:0.5") == L2(0.5)


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("linf:many", InputError, 'expected a threat such as "linf:8/255"'),
        ("linf:1/0", InputError, "expected a threat such as"),
        ("", InputError, "expected a threat such as"),
        ("linf:-1/255", InputError, "expected eps >= 0 in pixel units, got -0.0039"),
        ("linf:nan", InputError, "expected eps >= 0 in pixel units, got nan"),
        ("l2:inf", InputError, "expected eps >= 0 in pixel units, got inf"),
        ("l3:1", UnknownNameError, "no norm is called 'l3': did you mean 'l2'"),
    ],
)
def test_what_is_no_threat_is_refused(text, error, says):
    with pytest.raises(error, match=says):
        parse(text)


@pytest.mark.parametrize("threat", [Linf(0.1), L2(0.7), Linf(0.0), L2(0.0)])
def test_projections_and_samples_are_inside_and_what_is_further_is_not(threat):
    x = images().round()
    far = threat.project(x + torch.randn(x.shape, generator=generator(0, "far")), x)
    assert threat.contains(far, x).all()
    torch.testing.assert_close(threat.project(far, x), far, atol=1e-6, rtol=0)
    middle = 0.25 + images() / 2
    delta = threat.sample(Noise(middle, generator(0, "noise")))
    assert (threat.size(delta) <= threat.eps * (1 + 1e-6)).all()
    assert not threat.contains(middle + 2 * threat.eps * 0.5 + 0.1, middle).any()
    assert not threat.contains(x - 1e-3, x).any()


def test_l2_samples_fill_the_ball_evenly():
    x = torch.rand(4000, 1, 1, 2, generator=generator(0, "x"))
    radius = L2(1.0).size(L2(1.0).sample(Noise(x, generator(0, "noise"))))
    assert kstest(radius**2, "uniform").pvalue > 1e-3  # in two dimensions


@pytest.mark.parametrize("threat", [Linf(0.1), L2(0.1)])
def test_the_steepest_direction_has_length_one_and_none_where_there_is_no_slope(threat):
    g = torch.randn(5, 3, 4, 4, generator=generator(0, "g"))
    torch.testing.assert_close(threat.size(threat.ascent(g)), torch.ones(5))
    assert (threat.ascent(g * 0) == 0).all()


def test_small_gradients_do_not_slow_an_attack_in_l2():
    x = torch.full((2, 1, 4, 4), 0.5)
    for size in (1.0, 1e-15, 1e-30):
        goal = lambda v, size=size: size * v.flatten(1).sum(dim=1)
        found = PGD(steps=20)(goal, x, L2(1.0), generator(0))
        assert torch.allclose(goal(found) - goal(x), torch.full((2,), 4 * size), rtol=0.05)


def test_a_budget_in_levels_instead_of_shares_is_refused():
    with pytest.raises(InputError, match="did you mean 8/255"):
        Linf(8)
