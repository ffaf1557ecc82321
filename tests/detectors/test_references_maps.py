"""Detectors of intermediate maps against plain loops from the papers."""

from dataclasses import replace

import numpy as np
import pytest
import references as ref
import torch
from references import close
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegressionCV
from torch import nn

from rood import data
from rood.attacks import PGD
from rood.detectors import Gram, LayeredMahalanobis, Mahalanobis, RankFeat
from rood.errors import CapabilityError, InputError
from rood.goals import look_in
from rood.models import zoo
from rood.models.wrap import wrap
from rood.seeds import generator, row_keys
from rood.threat import Linf


@pytest.fixture
def double(world):
    return world.double()


@pytest.fixture
def x(double):
    return torch.cat([double.inside[:15], double.outside[:15]])


def images_and_labels(double):
    return tuple(torch.cat(part) for part in zip(*double.train, strict=True))


# RankFeat


def cut(maps):
    """Each map as channels x places, without its leading singular component."""
    found = []
    for f in maps:
        u, s, v = np.linalg.svd(f.reshape(len(f), -1), full_matrices=False)
        found.append((f.reshape(len(f), -1) - s[0] * np.outer(u[:, 0], v[0])).reshape(f.shape))
    return torch.from_numpy(np.stack(found))


@pytest.mark.parametrize("channels", [2, 30])  # less and more than the 16 places of the last map
def test_rankfeat_equals_a_reference_by_singular_values(channels, double):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(5, channels, 3, stride=2, padding=1),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, 4),
    ).double()
    x = double.inside[:6]
    early = net[:2](x)
    late = net[2:4](early)
    z = (net[2:](cut(early.detach().numpy())) + net[4:](cut(late.detach().numpy()))) / 2
    d = RankFeat(wrap(net), temperature=2.0)
    close(d.score(x), [-2 * ref.lse([v / 2 for v in row]) for row in z.tolist()], rtol=1e-8)


def test_rankfeat_takes_the_layers_it_is_told_and_needs_a_map(double, x):
    one = RankFeat(double.model, layers=("5",))
    assert not torch.equal(one.score(x), RankFeat(double.model).score(x))
    flat = wrap(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).double())
    with pytest.raises(CapabilityError, match="feature maps"):
        RankFeat(flat).score(x)


# Gram


def statistic(f, q):
    """Signed q-th roots of the row sums of a literal Gram matrix, channels x channels."""
    f = f.reshape(len(f), -1) ** q
    g = np.array([[float(np.dot(a, b)) for b in f] for a in f])
    rows = g.sum(axis=1)
    return np.sign(rows) * np.abs(rows) ** (1 / q)


def deviation(v, low, high):
    total = 0.0
    for a, lo, hi in zip(v, low, high, strict=True):
        total += max(lo - a, 0) / abs(lo + 1e-6) + max(a - hi, 0) / abs(hi + 1e-6)
    return total


class GramReference:
    def __init__(self, model, layers, orders):
        self.model, self.layers, self.orders = model, layers, orders

    def look(self, x):
        """For each image: predicted class, max p, a vector of statistics a layer."""
        out = self.model(x, self.layers)
        maps = [m.numpy() for m in out.maps]
        for i, z in enumerate(out.logits.tolist()):
            each = [[statistic(m[i], q) for q in range(1, self.orders + 1)] for m in maps]
            yield z.index(max(z)), max(ref.softmax(z)), [np.concatenate(v) for v in each]

    def deltas(self, y, p, stats):
        low, high = self.bounds[y]
        return [deviation(v, a, b) / p for v, a, b in zip(stats, low, high, strict=True)]

    def fit(self, x, held):
        seen = list(self.look(x))
        self.bounds = {}
        for c in {y for y, _, _ in seen}:
            mine = [s for (y, _, s), h in zip(seen, held, strict=True) if y == c and not h]
            by_layer = [np.stack(v) for v in zip(*mine, strict=True)]
            self.bounds[c] = ([v.min(axis=0) for v in by_layer], [v.max(axis=0) for v in by_layer])
        out = [self.deltas(*s) for s, h in zip(seen, held, strict=True) if h]
        self.scale = np.mean(out, axis=0) + 1e-7
        return self

    def score(self, x):
        return [float(np.sum(self.deltas(*s) / self.scale)) for s in self.look(x)]


@pytest.mark.parametrize(("orders", "layers"), [(1, None), (5, None), (10, ("3", "5"))])
def test_gram_equals_a_literal_reference(orders, layers, double, x):
    images, _ = images_and_labels(double)
    d = Gram(double.model, orders=orders, layers=layers).fit(double.train)
    held = (row_keys(images) % 10 == 0).tolist()
    assert 5 < sum(held) < 60
    want = GramReference(double.model, d.taps, orders).fit(images, held).score(x)
    close(d.score(x), want, rtol=1e-6)
    assert max(want) > 0


def test_gram_takes_bounds_of_the_predicted_class_and_not_of_the_label(double, x):
    wrong = [(b, (y + 1) % 3) for b, y in double.train]
    a, b = Gram(double.model).fit(double.train), Gram(double.model).fit(wrong)
    assert torch.equal(a.score(x), b.score(x))


def test_gram_does_not_overflow_on_large_activations(world):
    world.model.net[0].weight.data.mul_(1e4)
    for bn in (world.model.net[1], world.model.net[4]):
        bn.eps = 1e12  # leaves the maps large
    d = Gram(world.model, orders=10, layers=("0",)).fit(world.train)
    assert world.model(world.inside, ("0",)).maps[0].abs().max() > 1e4
    s = d.score(world.outside)
    assert s.isfinite().all()
    assert s.max() > 0


def test_gram_scales_with_the_maps(double):
    d = Gram(double.model, orders=4, layers=("0",))
    maps = torch.randn(3, 8, 4, 4, generator=torch.Generator().manual_seed(0)).double()
    want = np.stack([np.concatenate([statistic(m, q) for q in range(1, 5)]) for m in maps.numpy()])
    close(d.statistics((maps,)), want, rtol=1e-9)
    close(d.statistics((1e6 * maps,)), 1e12 * want, rtol=1e-9)
    maps[:, 0], maps[2] = 0, 0  # a dead channel, a dead image
    (g,) = torch.autograd.grad(d.statistics((maps.requires_grad_(),)).sum(), maps)
    assert g.isfinite().all()


def test_grams_surrogate_leads_out_of_the_box_where_the_score_is_flat(double):
    d = Gram(double.model).fit(double.train)
    images = double.inside.clone().requires_grad_()
    s = d.score(images)
    (own,) = torch.autograd.grad(s.sum(), images)
    (soft,) = torch.autograd.grad(d.surrogates()[0](images).sum(), images)
    inside = s == 0
    assert inside.sum() > 5
    assert own[inside].abs().sum() == 0
    assert (soft[inside].flatten(1).abs().amax(dim=1) > 0).all()


def test_grams_surrogate_falls_towards_the_middle_of_the_box(double, monkeypatch):
    d = Gram(double.model).fit(double.train)
    x = double.inside[:5]
    y = double.model(x).logits.argmax(dim=1)
    low, high = d.low_[y], d.high_[y]
    alike = (low.abs() > 0.3 * high.abs()) & (high.abs() > 0.3 * low.abs()) & (high > low)
    assert alike.sum() > 20
    for place, sign in ((0.95, 1), (0.05, -1)):
        v = (low + place * (high - low)).requires_grad_()
        monkeypatch.setattr(d, "statistics", lambda _, v=v: v)
        (g,) = torch.autograd.grad(d.surrogates()[0](x).sum(), v)
        assert (g[alike].sign() == sign).all()


def test_gram_takes_flat_maps_and_refuses_too_few_images(double):
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 6), nn.ReLU(), nn.Linear(6, 3)
    )
    model = wrap(net.double())
    assert Gram(model).fit(double.train).score(double.outside).isfinite().all()
    with pytest.raises(InputError, match="too few"):
        Gram(model).fit([(x[:1], y[:1]) for x, y in double.train[:1]])
    with pytest.raises(CapabilityError, match="convolutions"):
        Gram(wrap(nn.Sequential(nn.Flatten(), nn.Linear(192, 3))))


# layered Mahalanobis


def confidences(model, layers, f_train, y):
    """M_l of one image, by loops; the training maps are pooled place by place."""
    means = [ref.class_means(f, y) for f in f_train]
    sigma = [ref.pooled_covariance(f, y) for f in f_train]

    def of(image):
        maps = model(torch.from_numpy(image)[None], layers).maps
        phi = [m[0].numpy().reshape(m.shape[1], -1).mean(axis=1) for m in maps]
        return [
            max(-0.5 * ref.distance(v, m, s) for m in mu)
            for v, mu, s in zip(phi, means, sigma, strict=True)
        ]

    return of


@pytest.fixture
def layered(double):
    images, y = images_and_labels(double)
    layers = ("0", "5")
    maps = double.model(images, layers).maps
    f = [m.numpy().reshape(*m.shape[:2], -1).mean(axis=2) for m in maps]
    return layers, confidences(double.model, layers, f, y.numpy())


def test_layered_mahalanobis_equals_its_reference(double, x, layered):
    layers, of = layered
    d = LayeredMahalanobis(double.model, layers=layers).fit(double.train)
    want = np.array([of(image) for image in x.numpy()])
    close(d.terms(x), want, rtol=1e-6)
    close(d.score(x), -want.mean(axis=1), rtol=1e-6)


@pytest.fixture
def stepping(double, layered):
    """With a step before every layer, two images, and their terms in plain loops."""
    layers, of = layered
    d = LayeredMahalanobis(double.model, layers=layers, eta=0.02).fit(double.train)
    x = torch.cat([double.inside[:1], double.outside[:1]])

    def terms(image, direction):
        slopes = [ref.slopes(lambda v, i=i: of(v)[i], image) for i in range(2)]
        return [of(image + d.eta * direction(g))[i] for i, g in enumerate(slopes)]

    return d, x, lambda direction: np.array([terms(image, direction) for image in x.numpy()])


def test_layered_mahalanobis_steps_for_each_layer_and_looks_for_the_class_again(stepping):
    d, x, terms = stepping
    close(d.terms(x), terms(np.sign), rtol=1e-5)
    assert d.cost() == (4, 2)


def test_layered_mahalanobis_surrogate_steps_along_tanh_in_place_of_the_sign(double, stepping):
    d, x, terms = stepping
    (smooth,) = d.surrogates()
    bent = lambda slope: np.tanh(slope / np.abs(slope).mean())
    close(smooth(x), -terms(bent).mean(axis=1), rtol=1e-5)
    assert LayeredMahalanobis(double.model).surrogates() == ()


def test_the_smooth_step_gets_an_attack_further_where_the_step_is_large():
    inside = data.load("share:0-0.6@digits:inside")
    outliers, near = (data.load(f"digits:{n}", limit=300) for n in ("outliers", "near"))
    d = LayeredMahalanobis(zoo.load("digits-ce"), eta=0.01).fit(inside.batches(250))
    d.weigh([inside.thin(300).pixels()], [outliers.pixels()])
    near = near.thin(8).pixels()
    goal = look_in(d)
    climbs = lambda g: goal(PGD(steps=20)(g, near, Linf(0.02), generator(0, "climb"))).detach()
    blind, foreseen = climbs(replace(goal, variants=())), climbs(goal.variants[0])
    assert (foreseen - blind).mean() > 0.2 * (blind - goal(near).detach()).mean() > 0


def test_one_layer_of_weight_minus_one_is_half_the_mahalanobis_distance(double, x):
    d = LayeredMahalanobis(double.model, layers=("5",)).fit(double.train)
    assert d.weights_.tolist() == [-1.0]
    assert d.bias_ == 0
    close(d.score(x), Mahalanobis(double.model).fit(double.train).score(x).numpy() / 2, rtol=1e-9)


def test_weigh_is_a_regression_whose_logit_is_the_score(double):
    d = LayeredMahalanobis(double.model, layers=("0", "2", "5")).fit(double.train)
    inside, outside = double.inside[:40], double.inside[20:] * 0.8 + 0.2 * double.outside[20:]
    alike = d.score(inside)
    m = np.concatenate([d.terms(v).numpy() for v in (inside, outside)])
    y = np.repeat([0, 1], 40)
    d.weigh([inside[:25], inside[25:]], [outside])
    s = torch.cat([d.score(inside), d.score(outside)])
    options = {
        "Cs": 10,
        "cv": 5,
        "scoring": "accuracy",
        "max_iter": 1000,
        "l1_ratios": (0.0,),
        "use_legacy_attributes": False,
    }
    scaled = (m - m.mean(axis=0)) / m.std(axis=0, ddof=1)
    close(s, LogisticRegressionCV(**options).fit(scaled, y).decision_function(scaled), rtol=1e-4)
    raw = LogisticRegressionCV(**options | {"max_iter": 20000, "tol": 1e-6}).fit(m, y)
    assert spearmanr(s, raw.decision_function(m)).statistic > 0.95
    assert s[y == 1].mean() > s[y == 0].mean()
    assert torch.equal(d.fit(double.train).score(inside), alike)  # weighed alike again


def test_layered_mahalanobis_tells_its_settings_and_reloads(double, x):
    d = LayeredMahalanobis(double.model, eta=1e-3).fit(double.train)
    assert d.settings()["eta"] == 1e-3
    assert d.settings()["layers"] is None
    fresh = LayeredMahalanobis(double.model, eta=1e-3).load_fitted(d.fitted_state())
    assert torch.equal(fresh.score(x), d.score(x))
