"""Presets of one published row, against plain loops of what the official code computes."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import references as ref
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from references import close
from refusals import refused
from scipy.stats import spearmanr
from torch import nn

from rood.attacks import PGD, registry
from rood.detectors import LayeredMahalanobis
from rood.errors import InputError
from rood.metrics import auroc
from rood.models import backbones
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.testing import attack_checks
from rood.testing import attacks as contract
from rood.threat import L2, Linf
from rood_papers.presets import OpenOODGram, OpenOODMDSEns, aloe_auroc, aloe_official

LAYERS = ("2", "5")  # of the toy network, behind a ReLU


@pytest.fixture
def x(double):
    return torch.cat([double.inside[:10], double.outside[:10]])


def images_and_labels(double):
    return tuple(torch.cat(part) for part in zip(*double.train, strict=True))


# Gram: the row sums of all channels and images of a class share one least and one greatest value;
# an image is judged by the sum of its row sums, and what lies outside counts as confidence


def row_sums(f, p):
    """The p-th roots of the row sums of F^p (F^p)', one number a channel."""
    f = f.reshape(len(f), -1) ** p
    gram = np.array([[float(np.dot(a, b)) for b in f] for a in f])
    total = gram.sum(axis=1)
    return np.sign(total) * np.abs(total) ** (1 / p)


def confidence_by_gram(model, layers, images, labels, x):
    of = lambda x: [m.numpy() for m in model(x, layers).maps]
    bounds = {}
    for layer, maps in enumerate(of(images)):
        for p in range(1, 6):
            for f, y in zip(maps, labels.tolist(), strict=True):
                values = row_sums(f, p)
                low, high = bounds.get((y, layer, p), (np.inf, -np.inf))
                bounds[y, layer, p] = min(low, values.min()), max(high, values.max())
    found = []
    maps, predicted = of(x), model(x).logits.argmax(dim=1).tolist()
    for i, y in enumerate(predicted):
        deviation = 0.0
        for layer in range(len(layers)):
            for p in range(1, 6):
                low, high = bounds[y, layer, p]
                v = float(row_sums(maps[layer][i], p).sum())
                deviation += max(low - v, 0) / abs(low + 1e-6) + max(v - high, 0) / abs(high + 1e-6)
        found.append(deviation / 50)
    return np.array(found)


def test_openoods_gram_equals_its_definition(double, x):
    images, y = images_and_labels(double)
    y = (y + (torch.arange(len(y)) % 7 == 0)) % 3  # labels that are not always what is predicted
    assert (y != double.model(images).logits.argmax(dim=1)).any()
    want = confidence_by_gram(double.model, LAYERS, images, y, x)
    d = OpenOODGram(double.model, layers=LAYERS).fit([(images[:50], y[:50]), (images[50:], y[50:])])
    close(d.score(x), -50 * want, rtol=1e-8)
    assert want[:10].min() > 0


def test_openoods_gram_learns_by_label_and_so_needs_one(double):
    images, y = images_and_labels(double)
    d = OpenOODGram(double.model, layers=LAYERS)
    refused(InputError, "labels 0 to 2, got -1", d.fit, [(images, torch.full_like(y, -1))])
    one = d.fit([(images[y == 0], y[y == 0])])
    assert torch.equal(one.low_[0], one.low_[2])  # a class without images: the range of all


def test_openoods_gram_has_no_scale(double, x):
    plain = OpenOODGram(double.model, layers=LAYERS).fit(double.train)
    assert (plain.weight_ == 1).all()
    assert plain.score(x).min() < 0
    assert plain.surrogates()[0](x).isfinite().all()


def test_the_surrogate_of_openoods_gram_rises_with_the_score_and_is_never_flat(double, x):
    d = OpenOODGram(double.model, layers=LAYERS).fit(double.train)
    x = x.clone().requires_grad_()
    s, (soft,) = d.score(x), d.surrogates()
    (own,) = torch.autograd.grad(s.sum(), x)
    (g,) = torch.autograd.grad(soft(x).sum(), x)
    assert (own[10:] == 0).all()  # in its bounds the score is flat
    assert (g.flatten(1).abs().amax(dim=1) > 0).all()
    assert spearmanr(s[:10].tolist(), soft(x)[:10].tolist()).statistic > 0.9


# MDSEns: the spatial mean of the first layer's map, a step of 0.0014 / 0.5 in normalised units


def confidence_by_mahalanobis(model, layer, images, labels):
    pooled = lambda x: model(x, (layer,)).maps[0].numpy().reshape(len(x), -1, 64).mean(axis=2)
    f, y = pooled(images), labels.numpy()
    means, sigma = ref.class_means(f, y), ref.pooled_covariance(f, y)

    def of(normal):
        """The confidences of normalised images."""
        rows = pooled(torch.from_numpy(normal) * model.std + model.mean)
        return np.array([max(-0.5 * ref.distance(v, m, sigma) for m in means) for v in rows])

    return of


def test_openoods_layered_mahalanobis_equals_its_definition(double):
    model = wrap(double.model.net, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.5))
    images, y = images_and_labels(double)
    of = confidence_by_mahalanobis(model, "2", images, y)
    d = OpenOODMDSEns(model, layers=("2",)).fit(double.train)
    x = torch.cat([double.inside[:2], double.outside[:2]])
    want = []
    for image in ((x - model.mean) / model.std).numpy():
        toward = np.where(ref.slopes(lambda v: -of(v), image) >= 0, 1, -1) / 0.5
        want.append(of((image - 0.0014 * toward)[None])[0])
    close(d.score(x), -np.array(want), rtol=1e-5)
    assert (d.score(x) < LayeredMahalanobis(model, layers=("2",)).fit(double.train).score(x)).all()


def test_a_step_in_units_of_std_is_one_in_pixels_times_std(double, x):
    assert (double.model.std == 0.25).all()
    a, b = (
        make(double.model, layers=("2",), eta=eta).fit(double.train)
        for make, eta in ((LayeredMahalanobis, 0.01), (OpenOODMDSEns, 0.04))
    )
    close(a.score(x), b.score(x).numpy(), rtol=1e-12)


# the layers


def test_the_presets_read_the_layers_openoods_resnet18_lists():
    model = wrap(backbones.create("resnet18", classes=3, width=4))
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    gram, layered = OpenOODGram(model), OpenOODMDSEns(model)
    net = model.net
    want = [nn.functional.relu(net.norm(net.stem(x)))]
    for stage in range(4):
        want.append(net.blocks[2 * stage : 2 * stage + 2](want[-1]))
    want[-1] = want[-1].mean(dim=(2, 3), keepdim=True)
    maps = model(x, gram.taps).maps
    assert len(maps) == 5
    for found, right in zip(maps, want, strict=True):
        torch.testing.assert_close(found, right)
    torch.testing.assert_close(model(x, layered.layers).maps[0], want[0])


# ALOE's stepping as coded


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
    return replace(aloe_official(), **{"compare": False, "random_start": False} | changes)


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


def test_the_official_preset_is_aloes_in_whole_levels_and_no_registry_entry():
    assert asdict(aloe_official()) == asdict(PGD.aloe())
    assert [n for n in registry.names() if "pgd" in n and "mono" not in n] == ["apgd", "pgd"]


@pytest.mark.parametrize(("sign", "at_four", "at_three"), [(+1, 7.9, 92), (-1, 1.6, 100)])
def test_truncation_stops_most_pixels_at_three_levels(sign, at_four, at_three):
    end = pushed(4, *[sign] * 10)[-1]
    assert share(end == 4 * sign, sign, 4) == pytest.approx(at_four, abs=0.05)
    assert share(end.abs() >= 3, sign, 4) == 100
    end = pushed(8, *[sign] * 10)[-1]
    assert share(end == 3 * sign, sign, 8) == pytest.approx(at_three, abs=0.5)
    end = pushed(3, *[sign] * 10)[-1]
    assert share(end == 3 * sign, sign, 3) == 100


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
    attack = aloe_official()
    refused(InputError, "got l2:0.5", attack, Pushed(1), LEVELS, L2(0.5), generator(0))


def test_the_official_preset_treats_each_image_on_its_own(world):
    x = world.inside[:6]
    attacked = lambda x: aloe_official()(contract._waves, x, Linf(4 / 255), generator(5))
    together = attacked(x)
    assert torch.equal(torch.cat([attacked(one) for one in x.split(1)]), together)
    assert torch.equal(attacked(x.flip(0)).flip(0), together)


def test_the_official_preset_keeps_the_contract_of_an_attack(world, monkeypatch):
    monkeypatch.setattr(contract, "THREATS", (Linf(8 / 255), Linf(1 / 255), Linf(0.0)))  # no L2
    monkeypatch.setattr(contract, "SPARSE", ())
    # ten steps of 1/255 do not cross a ball of 8/255 from its far side
    left_out = {"check_reaches_the_optimum_of_a_linear_goal", "check_treats_each_image_on_its_own"}
    for check in attack_checks(aloe_official):
        if check.__name__ not in left_out:
            check(aloe_official, world.copy())


# ALOE's AUROC


SCORES = st.lists(st.integers(0, 5), min_size=1, max_size=12)


@given(inside=SCORES, outside=SCORES)
@settings(max_examples=100, deadline=None)
def test_aloes_auroc_is_below_auroc_by_half_the_ties(inside, outside):
    stretched = [np.exp(5.0 * np.array(s)) - 1e3 for s in (inside, outside)]
    aloe = aloe_auroc(inside=inside, outside=outside)
    assert aloe == aloe_auroc(inside=stretched[0], outside=stretched[1])
    assert aloe == pytest.approx(slow_aloe_auroc(inside, outside), abs=1e-12)
    whole = auroc(inside=inside, outside=outside)
    assert aloe <= whole + 1e-12
    assert whole <= (1 + aloe) / 2 + 1e-12  # ties are at most all pairs that were not won


def slow_aloe_auroc(inside, outside):
    return np.mean([[b > a for b in outside] for a in inside])


def test_half_saturated_scores_cost_aloe_an_eighth():
    assert aloe_auroc(inside=[1.0] * 30, outside=[1.0] * 10) == 0
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(size=(2, 2000))
    inside[:1000] = outside[:1000] = -99.0  # softmax rounded to 1
    sides = {"inside": inside, "outside": outside}
    assert aloe_auroc(**sides) == pytest.approx(auroc(**sides) - 0.125, abs=1e-12)
    assert aloe_auroc(**sides) == pytest.approx(0.373, abs=0.01)
    assert aloe_auroc(**sides) == pytest.approx((outside > inside[:, None]).mean(), abs=1e-12)
