"""Layered Mahalanobis against plain loops: steps, weights, surrogate."""

from dataclasses import replace

import numpy as np
import pytest
import references as ref
import torch
from references import close
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegressionCV

from rood import data
from rood.attacks import PGD
from rood.detectors import LayeredMahalanobis, Mahalanobis
from rood.goals import look_in
from rood.models import zoo
from rood.seeds import generator
from rood.threat import Linf


def confidences(model, layers, f_train, y):
    """M_l of images, by loops; the training maps are pooled place by place."""
    means = [ref.class_means(f, y) for f in f_train]
    sigma = [ref.pooled_covariance(f, y) for f in f_train]

    def of(images):
        maps = model(torch.from_numpy(images), layers).maps
        phi = [m.numpy().reshape(*m.shape[:2], -1).mean(axis=2) for m in maps]
        columns = [
            [max(-0.5 * ref.distance(v, m, s) for m in mu) for v in rows]
            for rows, mu, s in zip(phi, means, sigma, strict=True)
        ]
        return np.array(columns).T

    return of


@pytest.fixture
def layered(double):
    images, y = ref.images_and_labels(double)
    layers = ("0", "5")
    maps = double.model(images, layers).maps
    f = [m.numpy().reshape(*m.shape[:2], -1).mean(axis=2) for m in maps]
    return layers, confidences(double.model, layers, f, y.numpy())


def test_layered_mahalanobis_equals_its_reference(double, x, layered):
    layers, of = layered
    d = LayeredMahalanobis(double.model, layers=layers).fit(double.train)
    want = of(x.numpy())
    close(d.terms(x), want, rtol=1e-6)
    close(d.score(x), -want.mean(axis=1), rtol=1e-6)


@pytest.fixture
def stepping(double, layered):
    """With a step before every layer, two images, and their terms in plain loops."""
    layers, of = layered
    d = LayeredMahalanobis(double.model, layers=layers, eta=0.02).fit(double.train)
    x = torch.cat([double.inside[:1], double.outside[:1]])

    def terms(image, direction):
        slopes = [ref.slopes(lambda v, i=i: of(v)[:, i], image) for i in range(2)]
        return [of((image + d.eta * direction(g))[None])[0, i] for i, g in enumerate(slopes)]

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
    inside = data.load("share:0-0.6@digits:inside").thin(600)
    outliers, near = (data.load(f"digits:{n}", limit=300) for n in ("outliers", "near"))
    d = LayeredMahalanobis(zoo.load("digits-ce"), eta=0.01).fit(inside.batches(250))
    d.weigh([inside.thin(100).pixels()], [outliers.thin(100).pixels()])
    near = near.thin(4).pixels()
    goal = look_in(d)
    climbs = lambda g: goal(PGD(steps=10)(g, near, Linf(0.02), generator(0, "climb"))).detach()
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
