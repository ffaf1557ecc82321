"""Each detector against its paper: slow references, identities, invariances, ranking."""

import math

import numpy as np
import pytest
import references as ref
import torch
from references import close, fitted_on
from scipy.stats import spearmanr

from rood.detectors import (
    KNN,
    MSP,
    ODIN,
    PRO,
    Energy,
    Entropy,
    Mahalanobis,
    MaxLogit,
    RelativeMahalanobis,
    ViM,
)
from rood.models.model import Outputs


@pytest.fixture
def double(world):
    return world.double()


@pytest.fixture
def queries(double):
    """Images from both sides, and their outputs, as arrays."""
    x = torch.cat([double.inside[:15], double.outside[:15]])
    out = double.model(x)
    return x, out.logits.numpy(), out.features.numpy()


@pytest.fixture
def training(double):
    """Features, labels and logits of the training images, as arrays."""
    outs = [double.model(x) for x, _ in double.train]
    y = torch.cat([y for _, y in double.train])
    f, z = (torch.cat([o[i] for o in outs]) for i in (1, 0))
    return f.numpy(), y.numpy(), z.numpy()


# references


@pytest.mark.parametrize(
    ("cls", "reference"),
    [
        (MSP, ref.margin),
        (MaxLogit, lambda z: -max(z)),
        (Energy, lambda z: -ref.lse(z)),
        (Entropy, lambda z: math.log(ref.entropy(z))),
    ],
)
def test_a_score_of_the_logits_equals_its_reference(cls, reference, double, queries):
    x, z, _ = queries
    close(cls(double.model).score(x), [reference(list(row)) for row in z])


def test_energy_at_a_temperature_equals_its_reference(double, queries):
    x, z, _ = queries
    close(Energy(double.model, temperature=2.5).score(x), [-2.5 * ref.lse(r / 2.5) for r in z])


@pytest.mark.parametrize(
    ("pooling", "covariance"),
    [("pooled", ref.pooled_covariance), ("class_average", ref.averaged_covariance)],
)
def test_mahalanobis_equals_its_reference_on_classes_of_unequal_size(
    pooling, covariance, double, queries, training
):
    x, _, q = queries
    f, y, _ = training
    keep = (y != 0) | (np.arange(len(y)) % 3 == 0)
    images = torch.cat([x for x, _ in double.train])[torch.from_numpy(keep)]
    labels = torch.from_numpy(y[keep])
    d = Mahalanobis(double.model, pooling=pooling).fit([(images, labels)])
    close(d.score(x), ref.mahalanobis(q, f[keep], y[keep], covariance), rtol=1e-6)
    assert d.ridge_ == 0


def test_the_two_poolings_differ_on_classes_of_unequal_size(training):
    f, y, _ = training
    keep = (y != 0) | (np.arange(len(y)) % 3 == 0)
    a, b = ref.pooled_covariance(f[keep], y[keep]), ref.averaged_covariance(f[keep], y[keep])
    assert np.abs(a - b).max() > 0.01 * np.abs(a).max()


def test_relative_mahalanobis_equals_its_reference(double, queries, training):
    x, _, q = queries
    f, y, _ = training
    d = RelativeMahalanobis(double.model).fit(double.train)
    close(d.score(x), ref.relative_mahalanobis(q, f, y), rtol=1e-6)


@pytest.mark.parametrize("k", [1, 7, 50])
def test_knn_equals_its_reference(k, double, queries, training):
    x, _, q = queries
    close(KNN(double.model, k=k).fit(double.train).score(x), ref.knn(q, training[0], k))


def test_knn_is_the_same_when_the_bank_is_searched_in_parts(double, queries, monkeypatch):
    x, _, _ = queries
    d = KNN(double.model, k=20).fit(double.train)
    whole = d.score(x)
    monkeypatch.setattr("rood.detectors.knn.CHUNK", 7)
    close(d.score(x), whole.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("dimension", [None, 5])
def test_vim_equals_its_reference(dimension, double, queries, training):
    x, z, q = queries
    f, _, fz = training
    head = double.model.head
    weight, bias = head.weight.numpy(), head.bias.numpy()
    d = ViM(double.model, dimension=dimension).fit(double.train)
    want = ref.vim(q, z, f, fz, weight, bias, dimension or 8)
    close(d.score(x), want, rtol=1e-6)


def one_image(double):
    """Logits of one image in numpy, for references that step in pixels."""

    def logits(x):
        return double.model(torch.from_numpy(x)[None]).logits[0].tolist()

    return logits


@pytest.mark.parametrize(("temperature", "eta"), [(1.0, 0.01), (10.0, 0.0014), (1000.0, 0.0028)])
def test_odin_ranks_as_its_reference_and_is_its_margin(temperature, eta, double):
    x = torch.cat([double.inside[:2], double.outside[:2]])
    logits = one_image(double)
    p = [ref.odin(logits, image, temperature, eta) for image in x.numpy()]
    offset = math.log(2)  # k - 1
    want = [temperature * (math.log(1 / v - 1) - offset) + offset for v in p]
    s = ODIN(double.model, temperature=temperature, eta=eta).score(x)
    close(s, want, rtol=1e-6)


@pytest.mark.parametrize(
    ("base", "score"),
    [
        (MSP, ref.margin),
        (Entropy, lambda z: math.log(ref.entropy(z))),
        (Energy, lambda z: -ref.lse(z)),
    ],
)
def test_pro_equals_its_reference_over_any_base(base, score, double):
    x = torch.cat([double.inside[:2], double.outside[:2]])
    logits = one_image(double)
    s = PRO(base(double.model), eps=2e-3, steps=2).score(x)
    want = [ref.pro(lambda v: score(logits(v)), image, 2e-3, 2) for image in x.numpy()]
    close(s, want, rtol=1e-7)


def test_pro_takes_the_highest_step_and_not_the_last(double):
    x = double.outside[:3]
    logits, score = one_image(double), lambda z: math.log(ref.entropy(z))
    want = [ref.pro(lambda v: score(logits(v)), image, 0.2, 1) for image in x.numpy()]
    pro = PRO(Entropy(double.model), eps=0.2, steps=1)
    assert (pro.climb(x)[1].argmax(dim=0) == 0).any()  # it overshoots
    close(pro.score(x), want, rtol=1e-7)
    close(pro.score(x.clone().requires_grad_()), want, rtol=1e-7)


def test_pro_steps_along_a_fitted_base_too(double):
    base = Mahalanobis(double.model).fit(double.train)
    x = double.inside[:8]
    assert (PRO(base, eps=1e-3, steps=2).score(x) > base.score(x)).all()


# G.1: identities


def test_odin_without_temperature_and_step_is_msp_exactly(world):
    x = torch.cat([world.inside, world.outside]).double()
    model = world.double().model
    assert torch.equal(ODIN(model, temperature=1.0, eta=0.0).score(x), MSP(model).score(x))


@pytest.mark.parametrize("base", [MSP, Entropy, Energy])
def test_pro_without_steps_is_its_base_exactly(base, world):
    base = base(world.model)
    assert torch.equal(PRO(base, steps=0).score(world.inside), base.score(world.inside))


def test_pro_of_no_length_is_its_base_exactly(world):
    base = MSP(world.model)
    assert torch.equal(PRO(base, eps=0.0, steps=2).score(world.inside), base.score(world.inside))


# G.2: invariances


def outputs(training):
    f, y, z = training
    return Outputs(torch.from_numpy(z), torch.from_numpy(f)), torch.from_numpy(y)


@pytest.mark.parametrize("cls", [Mahalanobis, RelativeMahalanobis])
def test_mahalanobis_does_not_see_an_affine_change_of_the_features(cls, double, training):
    out, y = outputs(training)
    g = torch.Generator().manual_seed(0)
    a = torch.randn(16, 16, generator=g).double() + 4 * torch.eye(16)
    moved = out._replace(features=out.features @ a.T + 3)
    s = fitted_on(cls(double.model), out, y).score_outputs(out)
    close(fitted_on(cls(double.model), moved, y).score_outputs(moved), s.numpy(), rtol=1e-6)


def test_a_constant_added_to_the_logits_shifts_two_scores_and_leaves_two(double, training):
    out, _ = outputs(training)
    more = out._replace(logits=out.logits + 7)
    for cls, shift in ((Energy, -7), (MaxLogit, -7), (MSP, 0), (Entropy, 0)):
        d = cls(double.model)
        close(d.score_outputs(more) - shift, d.score_outputs(out).numpy(), rtol=1e-9)


def test_knn_does_not_see_the_length_of_the_features(double, training):
    out, y = outputs(training)
    longer = out._replace(features=5 * out.features)
    s = fitted_on(KNN(double.model), out, y).score_outputs(out)
    close(fitted_on(KNN(double.model), longer, y).score_outputs(longer), s.numpy(), rtol=1e-9)


# G.7: unsaturated scores rank as the papers' scores


@pytest.mark.parametrize(
    ("ours", "paper"),
    [
        (MSP, lambda z: -ref.max_probability(z)),
        (Entropy, ref.entropy),
        (lambda m: ODIN(m, eta=0.0), lambda z: -ref.max_probability(z, 1000.0)),
    ],
)
def test_an_unsaturated_score_ranks_as_the_papers_does(ours, paper, double, queries):
    x, z, _ = queries
    want = [paper(list(row)) for row in z]
    assert spearmanr(ours(double.model).score(x), want).statistic == pytest.approx(1, abs=1e-12)
