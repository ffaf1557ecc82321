"""Where an attack may go: written, read, projected to and drawn from."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from rood.attacks import APGD, PGD
from rood.attacks.worst_of import WorstOf
from rood.corruptions import corrupt
from rood.errors import InputError, UnknownNameError
from rood.seeds import Noise, generator
from rood.testing.attacks import best_gain
from rood.threat import L0, L1, L2, Corrupted, Linf, Patch, parse, to_8_bit


def images():
    return torch.rand(6, 3, 8, 8, generator=generator(0, "images"))


@given(st.floats(0, 1), st.sampled_from([Linf, L2, L1]))
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
        (L1(4.0), "l1:4"),
        (L0(20), "l0:20"),
        (L0(10**6), "l0:1e+06"),
        (Corrupted(1e6, "any", 1, L2), "any:1+l2:1e+06"),
        (Patch(8), "patch:8"),
        (Corrupted(8 / 255, "fog", 3), "fog:3+linf:8/255"),
        (Corrupted(0.5, "any", 1, L2), "any:1+l2:0.5"),
    ],
)
def test_a_threat_is_written_as_people_write_it(threat, text):
    assert str(threat) == text
    assert parse(text) == threat


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
        ("l3:1", UnknownNameError, "no norm is called 'l3': did you mean 'l"),
        ("frog:3+linf:0.1", UnknownNameError, "no corruption is called 'frog'"),
        ("fog:9+linf:0.1", InputError, "expected a severity from 1 to 5, got 9"),
        ("fog+linf:0.1", InputError, "expected a corruption and a budget such as"),
        ("fog:1+fog:1+linf:0.1", InputError, "expected a corruption and a budget such as"),
        ("l0:2.5", InputError, "expected a whole number of pixels for l0, got 2.5"),
        ("patch:0.5", InputError, "expected a whole number of pixels for patch, got 0.5"),
    ],
)
def test_what_is_no_threat_is_refused(text, error, says):
    with pytest.raises(error, match=says):
        parse(text)


SPARSE = [L1(4.0), L1(0.3), L0(20), L0(1), Patch(3), Patch(8)]
NOTHING = [Linf(0.0), L2(0.0), L1(0.0), L0(0), Patch(0)]


@pytest.mark.parametrize("threat", [Linf(0.1), L2(0.7), *SPARSE[:-1], *NOTHING])
def test_projections_and_samples_are_inside_and_what_is_further_is_not(threat):
    x = images().round()
    far = threat.project(x + torch.randn(x.shape, generator=generator(0, "far")), x)
    assert threat.contains(far, x).all()
    torch.testing.assert_close(threat.project(far, x), far, atol=1e-6, rtol=0)
    middle = 0.25 + images() / 2
    delta = threat.sample(Noise(middle, generator(0, "noise")))
    assert (threat.size(delta) <= threat.eps * (1 + 1e-6)).all()
    assert not threat.contains((middle + threat.eps + 0.1).clamp(max=1), middle).any()
    assert not threat.contains(x - 1e-3, x).any()


def test_l2_samples_fill_the_ball_evenly():
    x = torch.rand(4000, 1, 1, 2, generator=generator(0, "x"))
    radius = L2(1.0).size(L2(1.0).sample(Noise(x, generator(0, "noise"))))
    assert kstest(radius**2, "uniform").pvalue > 1e-3  # in two dimensions


@pytest.mark.parametrize("threat", [Linf(0.1), L2(0.1), L1(1.0), L0(3), Patch(3)])
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


@pytest.mark.parametrize("threat", SPARSE)
@pytest.mark.parametrize("kind", ["grey", "black and white"])
def test_attacks_reach_what_a_linear_goal_allows_in_few_pixels(threat, kind):
    x = images() if kind == "grey" else images().round()
    w = torch.randn(x.shape, generator=generator(0, "w"))
    goal = lambda v: (v * w).flatten(1).sum(dim=1)
    best = best_gain(threat, w, x)
    for attack, least in ((APGD(steps=40), 0.99), (PGD(), 0.95)):
        share = (goal(attack(goal, x, threat, generator(0))) - goal(x)) / best
        assert (share > least).all()
        assert (share < 1 + 1e-5).all()


@pytest.mark.parametrize("threat", [L1(2.0), L0(2), Patch(2)])
def test_no_allowed_image_is_nearer_than_the_projection(threat):
    x = torch.rand(1, 1, 3, 3, generator=generator(0, "x"))
    far = x + torch.randn(1, 1, 3, 3, generator=generator(0, "far"))
    nearest = (threat.project(far, x) - far).norm()
    x, far = (v.expand(20_000, 1, 3, 3) for v in (x, far))
    others = x + 1.5 * torch.randn(x.shape, generator=generator(0, "others"))
    others = threat.project((others + far) / 2, x)
    assert threat.contains(others, x).all()
    assert ((others - far).flatten(1).norm(dim=1) >= nearest - 1e-5).all()


@pytest.mark.parametrize("pixels", [2, 3, 8, 16])
def test_rounding_costs_no_pixel_of_an_l1_budget(pixels):
    x = 0.1 + 0.4 * torch.rand(50, 1, 4, 4, generator=generator(0, "x"))
    delta = torch.zeros_like(x)
    delta.flatten(1)[:, :pixels] = 0.4
    threat = L1(0.3 * pixels)
    want = x + 0.75 * delta
    torch.testing.assert_close(threat.project(x + delta, x), want, atol=1e-6, rtol=0)


def test_many_tiny_changes_stay_within_an_l1_budget_in_float32():
    x = torch.rand(2, 3, 128, 128, generator=generator(0, "x"))
    delta = L1(4.0).sample(Noise(x, generator(0, "noise")))
    assert L1(4.0).contains(L1(4.0).project(x + 3 * delta, x), x).all()


def test_l1_samples_fill_the_ball_evenly():
    x = torch.rand(4000, 1, 1, 2, generator=generator(0, "x"))
    radius = L1(1.0).size(L1(1.0).sample(Noise(x, generator(0, "noise"))))
    assert kstest(radius**2, "uniform").pvalue > 1e-3  # in two dimensions


def test_a_patch_is_one_square_and_l0_counts_pixels_not_channels():
    changes = torch.zeros(1, 3, 6, 6)
    changes[0, :, 1, 2] = changes[0, 1, 3, 2] = 0.5
    assert Patch(3).size(changes).item() == 3
    assert L0(2).size(changes).item() == 2
    assert Patch(9).contains(torch.zeros(1, 3, 6, 6) + 1, torch.zeros(1, 3, 6, 6)).all()


@pytest.mark.parametrize("threat", [L1(4.0), L0(20), Patch(3)])
def test_images_of_few_changed_pixels_are_saved_with_8_bits_inside(threat):
    x = (255 * images()).round() / 255
    found = threat.project(torch.rand(x.shape, generator=generator(0, "found")), x)
    whole = to_8_bit(found, x, threat)
    assert threat.contains(whole, x).all()
    assert (whole != x).any()


@pytest.mark.parametrize("threat", [Corrupted(0.02, "fog", 2), Corrupted(2.0, "any", 1, L1)])
def test_a_change_after_a_corruption_is_projected_to_the_nearest_ball(threat):
    x = images()
    for origin in threat.origins(x):
        near = threat.local.project(origin + 0.3 * (images() - 0.5), origin)
        assert threat.contains(near, x).all()
        assert threat.contains(threat.project(near, x), x).all()
        torch.testing.assert_close(threat.project(near, x), near, atol=1e-6, rtol=0)
    far = 1 - corrupt(x, "contrast", 5)
    assert not threat.contains(far, x).any()
    assert threat.contains(threat.project(far, x), x).all()
    whole = (255 * x).round() / 255
    assert threat.contains(to_8_bit(far, whole, threat), whole).all()


@pytest.mark.parametrize("attack", [APGD(steps=10), WorstOf(tier="quick")])
def test_an_attack_takes_the_corruption_that_helps_most_and_climbs_from_there(attack):
    x = images()
    w = torch.randn(x.shape, generator=generator(0, "w"))
    goal = lambda v: (v * w[: len(v)]).flatten(1).sum(dim=1)
    threat = Corrupted(0.02, "any", 5)
    found = attack(goal, x, threat, generator(0))
    best = torch.stack([goal(v) + best_gain(threat.local, w, v) for v in threat.origins(x)])
    start = torch.stack([goal(v) for v in threat.origins(x)]).amax(dim=0)
    assert threat.contains(found, x).all()
    assert (goal(found) > start).all()
    assert (goal(found) <= best.amax(dim=0) + 1e-4).all()
    chosen = best.gather(0, torch.stack([goal(v) for v in threat.origins(x)]).argmax(0)[None])[0]
    assert (goal(found) >= start + 0.98 * (chosen - start)).all()
