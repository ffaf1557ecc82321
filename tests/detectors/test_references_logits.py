"""Detectors of the logits, and detectors around detectors, against plain loops from the papers."""

import copy
import math

import numpy as np
import pytest
import references as ref
import torch
from references import close
from scipy.stats import spearmanr
from torch import nn

from rood.detectors import (
    GEN,
    MSP,
    PRO,
    DeepEnsemble,
    Energy,
    Ensemble,
    Entropy,
    KLMatching,
    Mahalanobis,
    TemperatureScaling,
    UniformCrossEntropy,
    registry,
)
from rood.errors import InputError
from rood.models.model import Outputs
from rood.models.wrap import wrap


@pytest.fixture
def double(world):
    return world.double()


@pytest.fixture
def x(double):
    return torch.cat([double.inside[:15], double.outside[:15]])


def logits_of(model, x):
    return [row.tolist() for row in model(x).logits]


def random_logits(n, k, spread=3.0):
    return spread * np.random.default_rng(0).normal(size=(n, k))


def outputs(z):
    z = torch.as_tensor(z, dtype=torch.float64)
    return Outputs(z, z)


# MSP at a temperature, temperature scaling


@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0, 1000.0])
def test_msp_at_a_temperature_is_its_margin_and_ranks_as_its_probability(temperature, double, x):
    z = logits_of(double.model, x)
    s = MSP(double.model, temperature=temperature).score(x)
    close(s, [ref.tempered_margin(row, temperature) for row in z])
    if temperature >= 1:  # below, the probability itself ties at 1
        p = [-ref.max_probability(row, temperature) for row in z]
        assert spearmanr(s, p).statistic == pytest.approx(1, abs=1e-12)


def mean_loss(z, y, temperature):
    return np.mean(
        [ref.lse(r / temperature) - r[k] / temperature for r, k in zip(z, y, strict=True)]
    )


def test_temperature_scaling_finds_the_temperature_of_least_loss(double):
    images = torch.cat([x for x, _ in double.train])
    y = torch.cat([y for _, y in double.train])
    y = torch.where(torch.arange(len(y)) % 5 == 0, (y + 1) % 3, y)  # wrong labels: T stays inside
    d = TemperatureScaling(double.model).fit([(images, y)])
    z = np.array(logits_of(double.model, images))
    t = float(d.temperature_)
    grid = [t * f for f in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0)]
    least = mean_loss(z, y.tolist(), t)
    assert all(mean_loss(z, y.tolist(), other) > least for other in grid)
    slope = (mean_loss(z, y.tolist(), t * 1.0001) - mean_loss(z, y.tolist(), t / 1.0001)) / 2e-4
    assert abs(slope) < 1e-4
    close(d.score(double.outside), MSP(double.model, temperature=t).score(double.outside).numpy())


def test_temperature_scaling_refuses_labels_that_are_no_class(double):
    with pytest.raises(InputError, match="labels 0 to 2"):
        TemperatureScaling(double.model).fit([(double.inside[:2], torch.tensor([0, 3]))])


# GEN


def gen_sum(z, gamma, top):
    """The paper's: the M largest p, sum of p^gamma (1 - p)^gamma."""
    p = sorted(ref.softmax(z), reverse=True)[:top]
    return sum(v**gamma * (1 - v) ** gamma for v in p)


@pytest.mark.parametrize(("gamma", "top"), [(0.1, 100), (0.01, 2), (0.5, 4), (2.0, 7), (5.0, 1)])
def test_gen_is_the_log_mean_of_the_papers_sum_and_ranks_alike(gamma, top, double):
    z = random_logits(40, 7, spread=2.0)
    s = GEN(double.model, gamma=gamma, top=top).score_outputs(outputs(z))
    sums = np.array([gen_sum(list(row), gamma, top) for row in z])
    close(s, np.log(sums / min(top, 7)) / gamma, rtol=1e-9)
    assert spearmanr(s, sums).statistic == pytest.approx(1, abs=1e-12)


def test_gen_end_to_end_equals_its_sum(double, x):
    sums = np.array([gen_sum(row, 0.1, 100) for row in logits_of(double.model, x)])
    close(GEN(double.model).score(x), 10 * np.log(sums / 3), rtol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("margin", [5.0, 17.0, 120.0, 1000.0])
def test_gen_has_a_finite_gradient_that_does_not_die(margin, dtype, double):
    z = torch.tensor([[margin, 0.0, -1.0, 0.0]], dtype=dtype, requires_grad=True)
    s = GEN(double.model).score_outputs(Outputs(z, z))
    (g,) = torch.autograd.grad(s.sum(), z)
    assert s.isfinite().all()
    assert g.isfinite().all()
    assert g[0, 0] < -0.1
    if margin == 5:
        want = 10 * math.log(gen_sum(z[0].tolist(), 0.1, 4) / 4)
        assert s.item() == pytest.approx(want, rel=1e-5 if dtype == torch.float32 else 1e-12)


def test_a_constant_added_to_the_logits_leaves_gen_and_shifts_nothing(double):
    z = random_logits(10, 5)
    for cls in (GEN, UniformCrossEntropy, lambda m: MSP(m, temperature=10.0)):
        d = cls(double.model)
        close(d.score_outputs(outputs(z + 7)), d.score_outputs(outputs(z)).numpy(), rtol=1e-9)


# uniform cross-entropy, KL matching


def test_uniform_cross_entropy_is_the_mean_log_probability(double, x):
    z = logits_of(double.model, x)
    want = [sum(math.log(p) for p in ref.softmax(row)) / 3 for row in z]
    s = UniformCrossEntropy(double.model).score(x)
    close(s, want, rtol=1e-8)
    assert s.max() <= -math.log(3)
    close(UniformCrossEntropy(double.model).score_outputs(outputs([[2.0] * 3])), [-math.log(3)])


def kl_matching(queries, seen):
    k = len(seen[0])
    typical = []
    for c in range(k):
        mine = [ref.softmax(z) for z in seen if max(range(k), key=lambda j: z[j]) == c]
        typical.append(np.mean(mine, axis=0) if mine else np.eye(k)[c])
    found = []
    for z in queries:
        p = ref.softmax(z)
        found.append(
            min(
                sum(a * (math.log(a) - math.log(max(b, 1e-12))) for a, b in zip(p, d, strict=True))
                for d in typical
            )
        )
    return found


def test_kl_matching_equals_its_reference(double, x):
    seen = [z for batch, _ in double.train for z in logits_of(double.model, batch)]
    d = KLMatching(double.model).fit([(b, torch.zeros_like(y)) for b, y in double.train])
    close(d.score(x), kl_matching(logits_of(double.model, x), seen), rtol=1e-7)


def test_kl_matching_takes_one_hot_for_a_class_never_predicted(double):
    seen = random_logits(30, 3)
    seen[:, 2] = seen.min() - 1
    queries = random_logits(20, 3)[::-1]
    d = ref.fitted_on(KLMatching(double.model), outputs(seen), torch.zeros(30).long())
    want = kl_matching([list(q) for q in queries], [list(z) for z in seen])
    close(d.score_outputs(outputs(queries.copy())), want, rtol=1e-9)


# PRO's named forms


@pytest.mark.parametrize(
    ("name", "options", "score"),
    [
        ("pro_msp_t", {"temperature": 10.0}, lambda z: ref.tempered_margin(z, 10.0)),
        ("pro_gen", {"gamma": 0.5, "top": 2}, lambda z: 2 * math.log(gen_sum(z, 0.5, 2) / 2)),
    ],
)
def test_a_named_form_of_pro_steps_along_its_own_base(name, options, score, double, x):
    d = registry.get(name)(double.model, eps=2e-3, steps=2, **options)
    logits = lambda v: double.model(torch.from_numpy(v)[None]).logits[0].tolist()
    images = torch.cat([x[:1], x[-1:]])
    want = [ref.pro(lambda v: score(logits(v)), image, 2e-3, 2) for image in images.numpy()]
    close(d.score(images), want, rtol=1e-6)


def test_the_named_forms_of_pro_have_the_papers_bases(world):
    t, gen = registry.get("pro_msp_t")(world.model), registry.get("pro_gen")(world.model)
    assert (type(t.base), t.base.temperature) == (MSP, 100.0)
    assert (type(gen.base), gen.base.gamma, gen.base.top) == (GEN, 0.01, 100)
    for d in (t, gen):
        none = PRO(d.base, steps=0)
        assert torch.equal(none.score(world.inside), d.base.score(world.inside))


# ensembles


def test_an_ensemble_of_one_is_its_member(double, x):
    member = Mahalanobis(double.model)
    raw = Ensemble([member]).fit(double.train)
    close(raw.score(x), member.score(x).numpy(), rtol=1e-12)
    normal = Ensemble([member], scale="normal").fit(double.train)
    seen = np.concatenate([member.score(b).numpy() for b, _ in double.train])
    close(normal.score(x), (member.score(x).numpy() - seen.mean()) / seen.std(ddof=1), rtol=1e-9)


def test_an_ensemble_averages_members_on_different_networks(double, x):
    other = copy.deepcopy(double.model)
    other.net[0].weight.data.mul_(0.5)
    a, b = Mahalanobis(double.model), Mahalanobis(other)
    e = Ensemble([a, b, Energy(other)]).fit(double.train)
    alone = Mahalanobis(other).fit(double.train)
    close(b.score(x), alone.score(x).numpy(), rtol=1e-12)
    parts = [d.score(x).numpy() for d in (a, alone, Energy(other))]
    close(e.score(x), sum(parts) / 3, rtol=1e-12)
    assert e.cost() == (3, 0)
    state = Ensemble([Mahalanobis(double.model), Mahalanobis(other), Energy(other)])
    assert torch.equal(state.load_fitted(e.fitted_state()).score(x), e.score(x))


def test_an_ensemble_to_be_scaled_refuses_batches_that_are_used_up(world):
    with pytest.raises(InputError, match="gone through again"):
        Ensemble([Mahalanobis(world.model)], scale="normal").fit(b for b in world.train)


def test_a_deep_ensemble_of_copies_is_the_entropy(double, x):
    copies = [copy.deepcopy(double.model) for _ in range(4)]
    close(DeepEnsemble(copies).score(x), Entropy(double.model).score(x).numpy(), rtol=1e-9)


def test_a_deep_ensemble_is_the_entropy_of_the_mean_softmax(double, x):
    other = copy.deepcopy(double.model)
    other.net[0].weight.data.mul_(0.5)
    want = []
    for a, b in zip(logits_of(double.model, x), logits_of(other, x), strict=True):
        p = [(u + v) / 2 for u, v in zip(ref.softmax(a), ref.softmax(b), strict=True)]
        want.append(math.log(-sum(v * math.log(v) for v in p)))
    close(DeepEnsemble([double.model, other]).score(x), want, rtol=1e-8)


def test_ensembles_refuse_nothing_and_networks_of_other_classes(world):
    with pytest.raises(InputError, match="at least one detector"):
        Ensemble([])
    with pytest.raises(InputError, match="at least one network"):
        DeepEnsemble([])
    other = wrap(nn.Sequential(nn.Flatten(), nn.Linear(192, 5)))
    with pytest.raises(InputError, match="same classes"):
        DeepEnsemble([world.model, other])
