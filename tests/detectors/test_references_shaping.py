"""Detectors that change features, weights or images first, against loops from the papers."""

import math

import numpy as np
import pytest
import references as ref
import torch
from references import close, fitted_on
from torch.nn.functional import interpolate, log_softmax

from rood import data
from rood.detectors import (
    ASH,
    DICE,
    MSP,
    PRO,
    SHE,
    Energy,
    Ensemble,
    GradNorm,
    LowResolution,
    Mahalanobis,
    Mirrored,
    ReAct,
    Scale,
    registry,
)
from rood.errors import InputError
from rood.models import zoo
from rood.models.model import Outputs


@pytest.fixture
def double(world):
    return world.double()


@pytest.fixture
def x(double):
    return torch.cat([double.inside[:15], double.outside[:15]])


@pytest.fixture
def features(double, x):
    return double.model(x).features.numpy()


@pytest.fixture
def training(double):
    """Features, labels and logits of the training images, as arrays."""
    outs = [double.model(x) for x, _ in double.train]
    y = torch.cat([y for _, y in double.train])
    f, z = (torch.cat([o[i] for o in outs]) for i in (1, 0))
    return f.numpy(), y.numpy(), z.numpy()


def head_of(double):
    return double.model.head.weight.numpy(), double.model.head.bias.numpy()


def energy(f, weight, bias):
    """-lse(W f + b), one product at a time."""
    z = [
        sum(w * v for w, v in zip(row, f, strict=True)) + b
        for row, b in zip(weight, bias, strict=True)
    ]
    return -ref.lse(z)


def percentile(values, p):
    """Linear between neighbours of the sorted values."""
    v = sorted(values)
    place = (len(v) - 1) * p / 100
    low = math.floor(place)
    return v[low] + (place - low) * (v[min(low + 1, len(v) - 1)] - v[low])


def of_features(double, f):
    """Outputs with features of our own making."""
    f = torch.as_tensor(f, dtype=torch.float64)
    return Outputs(double.model.head(f), f)


# ReAct


@pytest.mark.parametrize("p", [50.0, 90.0, 99.0])
def test_react_equals_its_reference(p, double, x, features, training):
    c = percentile([v for row in training[0] for v in row], p)
    want = [energy([min(v, c) for v in f], *head_of(double)) for f in features]
    d = ReAct(double.model, percentile=p).fit(double.train)
    assert float(d.clip_) == pytest.approx(c, rel=1e-12)
    close(d.score(x), want, rtol=1e-9)


def test_react_that_clips_nothing_is_the_energy(double, x):
    d = ReAct(double.model).fit(double.train)
    d.clip_ = torch.tensor(math.inf, dtype=torch.float64)
    assert torch.equal(d.score(x), Energy(double.model).score(x))


def test_reacts_straight_surrogate_has_its_value_and_a_gradient_where_it_clips(double):
    d = ReAct(double.model, percentile=1.0).fit(double.train)
    x = double.inside[:5].clone().requires_grad_()
    straight, plain = d.surrogates()
    close(straight(x), d.score(x).detach().numpy(), rtol=1e-12)
    close(plain(x), Energy(double.model).score(x).detach().numpy(), rtol=1e-12)
    (own,) = torch.autograd.grad(d.score(x).sum(), x)
    (through,) = torch.autograd.grad(straight(x).sum(), x)
    assert own.abs().amax() < 1e-3 * through.abs().amax()


# ASH and SCALE


def kept(f, p):
    """Places of the k largest; of equal ones, the first."""
    k = len(f) - round(len(f) * p / 100)
    return sorted(range(len(f)), key=lambda j: (-f[j], j))[:k]


def ash(f, p, treatment):
    """The shaped features of one image."""
    places = kept(f, p)
    before, after = sum(f), sum(f[j] for j in places)
    shaped = [0.0] * len(f)
    for j in places:
        shaped[j] = {"p": f[j], "b": before / len(places), "s": f[j] * math.exp(before / after)}[
            treatment
        ]
    return shaped


@pytest.mark.parametrize("p", [0.0, 30.0, 65.0, 90.0])
@pytest.mark.parametrize("treatment", ["b", "p", "s"])
def test_ash_equals_its_reference(treatment, p, double, x, features):
    d = registry.get(f"ash_{treatment}")(double.model, percentile=p)
    want = [energy(ash(f, p, treatment), *head_of(double)) for f in features]
    close(d.score(x), want, rtol=1e-9)


@pytest.mark.parametrize("treatment", ["b", "p", "s"])
def test_ash_breaks_ties_by_the_order_of_the_features(treatment, double):
    f = [0.0, 1.0, 2.0, 1.0, 1.0, 0.5, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    want = energy(ash(f, 70.0, treatment), *head_of(double))
    d = ASH(double.model, treatment=treatment, percentile=70.0)
    close(d.score_outputs(of_features(double, [f])), [want], rtol=1e-9)
    assert kept(f, 70.0) == [2, 1, 3, 4, 6]


def test_ash_that_prunes_nothing_is_the_energy(double, x):
    d = ASH.p(double.model, percentile=0.0)
    assert torch.equal(d.score(x), Energy(double.model).score(x))


@pytest.mark.parametrize("p", [0.0, 65.0, 85.0])
def test_scale_equals_its_reference(p, double, x, features):
    want = []
    for f in features:
        r = sum(f) / sum(f[j] for j in kept(f, p))
        want.append(energy([v * math.exp(r) for v in f], *head_of(double)))
    close(Scale(double.model, percentile=p).score(x), want, rtol=1e-9)


@pytest.mark.parametrize("make", [Scale, ASH.s])
def test_the_scaling_does_not_overflow_where_what_is_kept_sums_to_nothing(make, world):
    f = torch.zeros(2, 16)
    f[1] = 1e-30
    s = make(world.model).score_outputs(Outputs(world.model.head(f), f))
    assert s.isfinite().all()


def test_react_refuses_a_percentile_that_would_make_all_scores_alike():
    images = data.load("digits:inside", limit=200)
    d = ReAct(zoo.load("digits-ce"), percentile=5.0)  # of features behind a ReLU
    with pytest.raises(InputError, match="got 5, at which all are clipped to 0"):
        d.fit(images.batches(100))


@pytest.mark.parametrize("make", [ASH, Scale, ReAct, DICE])
def test_a_percentile_that_is_none_is_refused(make, world):
    with pytest.raises(InputError, match="percentile"):
        make(world.model, percentile=101.0)


# DICE


def dice(queries, f, weight, bias, p):
    mean = [sum(column) / len(f) for column in f.T]
    contribution = [[w * m for w, m in zip(row, mean, strict=True)] for row in weight]
    bar = percentile([v for row in contribution for v in row], p)
    masked = [
        [w if v > bar else 0.0 for w, v in zip(row, part, strict=True)]
        for row, part in zip(weight, contribution, strict=True)
    ]
    return [energy(q, masked, bias) for q in queries]


@pytest.mark.parametrize("p", [0.0, 10.0, 90.0])
def test_dice_equals_its_reference(p, double, x, features, training):
    want = dice(features, training[0], *head_of(double), p)
    close(DICE(double.model, percentile=p).fit(double.train).score(x), want, rtol=1e-9)


def test_dice_keeps_only_what_is_strictly_above_the_percentile(double):
    double.model.head.weight.data.fill_(0.5)
    double.model.head.weight.data[0, 0] = -1.0
    flat = of_features(double, torch.ones(4, 16))  # all contributions tie but the lowest
    y = torch.zeros(4).long()
    d = fitted_on(DICE(double.model, percentile=50.0), flat, y)
    assert d.mask_.sum() == 0
    d = fitted_on(DICE(double.model, percentile=0.0), flat, y)
    assert d.mask_.sum() == 47  # all but the minimum
    assert d.mask_[0, 0] == 0


# GradNorm


def test_gradnorm_is_the_norm_of_the_gradient_that_autograd_finds(double, x, features):
    want = []
    for f in torch.from_numpy(features):
        weight = double.model.head.weight.detach().clone().requires_grad_()
        z = weight @ f + double.model.head.bias
        (g,) = torch.autograd.grad(-log_softmax(z, dim=0).sum(), weight)
        want.append(-g.abs().sum().item())
    close(GradNorm(double.model).score(x), want, rtol=1e-8)


def test_gradnorm_equals_its_closed_form(double, x, features):
    z = double.model(x).logits.tolist()
    want = [
        -sum(abs(v) for v in f) * sum(abs(3 * p - 1) for p in ref.softmax(row))
        for f, row in zip(features, z, strict=True)
    ]
    close(GradNorm(double.model).score(x), want, rtol=1e-9)


# SHE


def she(queries, logits, f, y, z):
    patterns = []
    for c in range(len(z[0])):
        mine = [(v, list(r)) for v, k, r in zip(f, y, z, strict=True) if k == c]
        right = [v for v, r in mine if r.index(max(r)) == c]
        patterns.append(np.mean(right or [v for v, _ in mine], axis=0))
    predicted = [list(r).index(max(r)) for r in logits]
    return [
        -sum(a * b for a, b in zip(q, patterns[k], strict=True))
        for q, k in zip(queries, predicted, strict=True)
    ]


@pytest.mark.parametrize("wrong", ["some", "a whole class"])
def test_she_equals_its_reference(wrong, double, x, features, training):
    f, y, z = training
    y = y.copy()
    if wrong == "some":
        y[::4] = (y[::4] + 1) % 3  # labels the network does not agree with
    else:
        y[y == 1] = 0
        y[::7] = 1
        y[z.argmax(axis=1) == 1] = 2  # class 1 is never right
    images = torch.cat([x for x, _ in double.train])
    d = SHE(double.model).fit([(images, torch.from_numpy(y))])
    want = she(features, double.model(x).logits.tolist(), f, y, z)
    close(d.score(x), want, rtol=1e-9)


# low resolution


def bilinear(image, h, w):
    """Half-pixel centres, edges repeated, no anti-aliasing."""
    c, h0, w0 = image.shape
    out = np.zeros((c, h, w))
    for i in range(h):
        for j in range(w):
            a = min(max((i + 0.5) * h0 / h - 0.5, 0), h0 - 1)
            b = min(max((j + 0.5) * w0 / w - 0.5, 0), w0 - 1)
            a0, b0 = int(a), int(b)
            a1, b1 = min(a0 + 1, h0 - 1), min(b0 + 1, w0 - 1)
            u, v = a - a0, b - b0
            top = (1 - v) * image[:, a0, b0] + v * image[:, a0, b1]
            low = (1 - v) * image[:, a1, b0] + v * image[:, a1, b1]
            out[:, i, j] = (1 - u) * top + u * low
    return out


@pytest.mark.parametrize("size", [(12, 20), (16, 16), (5, 3), (8, 8)])
def test_low_resolution_scores_the_image_resized_by_hand(size, double):
    x = double.inside[:3]
    by_hand = torch.from_numpy(np.stack([bilinear(image, *size) for image in x.numpy()]))
    by_torch = interpolate(x, size, mode="bilinear", align_corners=False, antialias=False)
    s = LowResolution(MSP(double.model), size=size).score(x)
    close(s, MSP(double.model).score(by_hand.clamp(0, 1)).numpy(), rtol=1e-9)
    close(s, MSP(double.model).score(by_torch).numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    "base", [Mahalanobis, lambda m: Ensemble([Mahalanobis(m)], scale="normal")]
)
def test_low_resolution_fits_its_base_on_resized_images(base, double, x):
    resize = lambda x: interpolate(x, (12, 12), mode="bilinear", align_corners=False)
    d = LowResolution(base(double.model), size=(12, 12)).fit(double.train)
    alone = base(double.model).fit([(resize(b), y) for b, y in double.train])
    close(d.score(x), alone.score(resize(x)).numpy(), rtol=1e-10)


@pytest.mark.parametrize("base", [MSP, Mahalanobis])
def test_mirrored_is_the_mean_of_the_scores_of_both_images(base, double, x):
    d = Mirrored(base(double.model)).fit(double.train)
    alone = base(double.model).fit(double.train)
    turned = torch.from_numpy(x.numpy()[:, :, :, ::-1].copy())
    by_hand = [
        (alone.score(a[None]) + alone.score(b[None])) / 2 for a, b in zip(x, turned, strict=True)
    ]
    close(d.score(x), torch.cat(by_hand).numpy(), rtol=1e-9)
    close(d.score(turned), d.score(x).numpy(), rtol=1e-9)
    assert (d.score(x) - alone.score(x)).abs().max() > 1e-6  # these images are not symmetric
    assert Mirrored(PRO(alone)).cost() == tuple(2 * passes for passes in PRO(alone).cost())


def test_mirrored_climbs_its_surrogates_in_both_images(double, x):
    base = Mahalanobis(double.model).fit(double.train)
    mirrored = Mirrored(base).surrogates()
    assert len(mirrored) == len(base.surrogates()) > 0
    for found, one in zip(mirrored, base.surrogates(), strict=True):
        close(found(x), ((one(x) + one(x.flip(-1))) / 2).numpy(), rtol=1e-9)
