"""Hard numbers: known optima, extreme margins, ill-conditioned covariances, bounded memory."""

import copy

import mpmath
import numpy as np
import pytest
import references as ref
import torch
from references import close, fitted_on
from scipy.stats import kstest
from torch import nn

from rood import wrap
from rood.attacks import PGD
from rood.detectors import Energy, Mahalanobis, RelativeMahalanobis, ViM
from rood.goals import look_in, look_out
from rood.models.model import Outputs
from rood.numerics.softmax import entropy_log_odds, log_entropy, margin
from rood.numerics.streaming import Moments, Sample
from rood.threat import L2, Linf

# G.3, G.4: optima that are known


def test_one_step_of_pgd_reaches_the_optimum_of_a_linear_model():
    g = torch.Generator().manual_seed(0)
    w, x = torch.randn(1, 3, 4, 4, generator=g), torch.full((2, 3, 4, 4), 0.5)
    attack = PGD(steps=1, random_start=False)
    goal = lambda x: (x * w).flatten(1).sum(dim=1)
    for threat, delta in ((Linf(0.1), 0.1 * w.sign()), (L2(0.3), 0.3 * w / w.norm())):
        found = attack(goal, x, threat, torch.Generator())
        torch.testing.assert_close(found, x + delta, atol=1e-6, rtol=0)


def identity_model(d):
    """A net whose features are the pixels themselves."""
    head = nn.Linear(d, 2)
    nn.init.normal_(head.weight, generator=torch.Generator().manual_seed(0))
    nn.init.zeros_(head.bias)
    return wrap(nn.Sequential(nn.Flatten(), head).double())


def test_hiding_from_mahalanobis_in_l2_shrinks_towards_the_nearest_mean():
    g = torch.Generator().manual_seed(1)
    y = torch.arange(4000) % 2
    x = 0.3 + 0.4 * y[:, None] + 0.02 * torch.randn(4000, 4, generator=g)
    x = x.double().view(-1, 1, 2, 2)
    d = Mahalanobis(identity_model(4)).fit([(x, y)])
    # a round covariance, so that the steepest way is the radial one
    d.whitener_ = torch.eye(4).double() * 50
    means = torch.stack([x[y == k].mean(dim=0) for k in (0, 1)])
    d.means_ = means.flatten(1) * 50
    start = means[:1] + 0.1 * torch.tensor([1.0, -1, 1, 1]).double().view(1, 1, 2, 2)
    found = PGD(steps=20, random_start=False)(look_in(d), start, L2(0.05), torch.Generator())
    want = start + 0.05 * (means[:1] - start) / (means[:1] - start).norm()
    torch.testing.assert_close(found, want, atol=1e-6, rtol=0)


# hard numbers


SCORES = [margin, log_entropy, entropy_log_odds, lambda z: margin(z, 1000.0)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("score", SCORES)
def test_at_a_margin_of_1000_score_and_gradient_are_finite_and_alive(score, dtype):
    z = torch.tensor([[1000.0, 0, -5, 3], [0, 0, 0, 1000], [0, 0, 0, 0]], dtype=dtype)
    z.requires_grad_()
    s = score(z)
    s.sum().backward()
    assert s.isfinite().all()
    assert z.grad.isfinite().all()
    assert (z.grad[:2].abs().amax(dim=1) > 0.5).all()


def test_log_entropy_equals_the_direct_form_where_that_still_works():
    z = torch.randn(200, 10, generator=torch.Generator().manual_seed(0)).double() * 6
    p = z.softmax(dim=1)
    close(log_entropy(z), (-(p * p.log()).sum(dim=1)).log().numpy(), rtol=1e-10)


@pytest.mark.parametrize("size", [6.0, 1.0, 1e-3, 1e-5, 1e-12])
def test_log_odds_of_the_entropy_are_right_down_to_the_uniform_softmax(size):
    z = size * torch.randn(20, 10, generator=torch.Generator().manual_seed(0)).double()
    mpmath.mp.dps = 60
    want = []
    for row in z.tolist():
        total = sum(mpmath.exp(v) for v in row)
        h = -sum(mpmath.exp(v) / total * (v - mpmath.log(total)) for v in row)
        want.append(float(mpmath.log(h) - mpmath.log(mpmath.log(10) - h)))
    close(entropy_log_odds(z), want, rtol=1e-4 if size < 1e-9 else 1e-8)


def test_log_odds_of_the_entropy_do_not_tie_where_float32_entropies_do():
    z = 1e-4 * torch.randn(200, 10, generator=torch.Generator().manual_seed(0))
    assert len(log_entropy(z).unique()) < 20
    assert len(entropy_log_odds(z).unique()) == 200


def exact_distances(f, y, queries):
    """min_k MD_k with 60 digits."""
    mpmath.mp.dps = 60
    rows = [mpmath.matrix([mpmath.mpf(float(v)) for v in row]) for row in f]
    d = f.shape[1]
    mu = []
    for k in sorted(set(y)):
        mine = [r for r, c in zip(rows, y, strict=True) if c == k]
        mu.append(sum(mine[1:], mine[0]) / len(mine))
    sigma = mpmath.zeros(d, d)
    for r, k in zip(rows, y, strict=True):
        sigma += (r - mu[k]) * (r - mu[k]).T
    sigma /= len(rows)
    found = []
    for q in queries:
        v = mpmath.matrix([mpmath.mpf(float(t)) for t in q])
        found.append(min(float(((v - m).T * mpmath.lu_solve(sigma, v - m))[0]) for m in mu))
    return found


def ill_conditioned(offset, n=300, d=12):
    """Features with standard deviations from 1 to 1e-4, turned round and far from the origin."""
    g = torch.Generator().manual_seed(0)
    turn, _ = torch.linalg.qr(torch.randn(d, d, generator=g).double())
    f = (
        torch.randn(n, d, generator=g).double() * torch.logspace(0, -4, d).double() @ turn.T
        + offset
    )
    y = torch.arange(n) % 3
    return (f + 0.1 * y[:, None]).float(), y


@pytest.mark.parametrize("offset", [3, 300])
def test_mahalanobis_keeps_six_digits_at_condition_1e8_where_a_float32_pinv_has_none(offset):
    f, y = ill_conditioned(offset)
    sigma = np.cov((f - torch.stack([f[y == k].mean(0) for k in range(3)])[y]).T.double().numpy())
    assert 1e7 < np.linalg.cond(sigma) < 1e10
    want = exact_distances(f.numpy(), y.numpy(), f[:10].numpy())
    d = Mahalanobis(wrap(nn.Sequential(nn.Flatten(), nn.Linear(12, 3))))
    out = Outputs(torch.zeros(len(f), 3), f)
    close(fitted_on(d, out, y).score_outputs(out)[:10], want, rtol=1e-6)
    mu = torch.stack([f[y == k].mean(dim=0) for k in range(3)])
    inverse = torch.linalg.pinv(((f - mu[y]).T @ (f - mu[y])) / len(f), hermitian=True)
    r = f[:10, None] - mu
    naive = torch.einsum("bki,ij,bkj->bk", r, inverse, r).amin(dim=1)
    assert np.abs(naive.numpy() / want - 1).max() > 0.05


@pytest.mark.parametrize("cls", [Mahalanobis, RelativeMahalanobis])
def test_dead_features_cost_a_recorded_ridge_and_no_more(cls, world):
    f, y = torch.randn(90, 16, generator=torch.Generator().manual_seed(0)), torch.arange(90) % 3
    f[:, 3] = 0.0  # a channel that never fires
    f[:, 5] = f[:, 6]  # two that fire alike
    out = Outputs(torch.zeros(90, 3), f)
    d = fitted_on(cls(copy.deepcopy(world.model)), out, y)
    assert 0 < d.ridge_ <= 1e-4
    assert d.score_outputs(out).isfinite().all()


def test_features_that_are_all_constant_still_give_finite_scores(world):
    out = Outputs(torch.zeros(90, 3), torch.ones(90, 16))
    d = fitted_on(Mahalanobis(copy.deepcopy(world.model)), out, torch.arange(90) % 3)
    assert d.score_outputs(out).isfinite().all()


@pytest.mark.parametrize("size", [1, 7, 400])
def test_streamed_moments_keep_their_digits_far_from_the_origin(size):
    g = torch.Generator().manual_seed(0)
    f = torch.randn(400, 5, generator=g).double() + 1e6
    y = torch.randint(3, (400,), generator=g)
    m = Moments(3, by_class=True)
    for part, labels in zip(f.split(size), y.split(size), strict=True):
        m.see(part, labels)
    rows, label = f.numpy(), y.numpy()
    np.testing.assert_array_equal(m.count, [(label == k).sum() for k in range(3)])
    np.testing.assert_allclose(m.mean, ref.class_means(rows, label), rtol=1e-14)
    centred = rows - np.stack(ref.class_means(rows, label))[label]
    np.testing.assert_allclose(m.within, centred.T @ centred, rtol=1e-7, atol=1e-6)
    for k in range(3):
        c = rows[label == k] - rows[label == k].mean(axis=0)
        np.testing.assert_allclose(m.scatter[k], c.T @ c, rtol=1e-7, atol=1e-6)
    n, mean, scatter = m.total()
    about = rows - rows.mean(axis=0)
    assert n == 400
    np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(scatter, about.T @ about, rtol=1e-7, atol=1e-6)


def numbers_held(thing, seen=None):
    """How many numbers an object keeps, in itself and in what it holds."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return 0
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor):
        return thing.numel()
    if isinstance(thing, dict):
        return sum(numbers_held(v, seen) for v in thing.values())
    if isinstance(thing, list | tuple):
        return sum(numbers_held(v, seen) for v in thing)
    return numbers_held(vars(thing), seen) if hasattr(thing, "__dict__") else 0


@pytest.mark.parametrize(
    "make",
    [
        Mahalanobis,
        lambda m: Mahalanobis(m, pooling="class_average"),
        RelativeMahalanobis,
        lambda m: ViM(m, sample=50),
    ],
)
def test_memory_of_fitting_does_not_grow_with_the_training_set(make, world):
    (x, y), d = world.train[0], make(world.model)
    parts = [p for p in d.modules() if hasattr(p, "see")]
    out = world.model(x)
    for part in parts:
        part.start()
    held = []
    for _ in range(20):
        for part in parts:
            part.see(out, y)
        held.append(numbers_held([vars(p) for p in parts]))
    assert held[-1] == held[0]


def test_raising_and_hiding_move_scores_in_opposite_ways(world):
    d = Energy(world.model)
    x, g = world.inside[:8], torch.Generator().manual_seed(0)
    attack = PGD(steps=5)
    low, high = (d.score(attack(f(d), x, Linf(0.05), g)) for f in (look_in, look_out))
    assert (low < d.score(x)).all()
    assert (high > d.score(x)).all()


def test_a_sample_is_bounded_even_and_blind_to_order_and_batches():
    rows = torch.arange(1000.0)[:, None].expand(-1, 3).contiguous()
    kept = []
    for order, size in ((torch.arange(1000), 1000), (torch.arange(999, -1, -1), 7)):
        sample = Sample(100)
        for part in rows[order].split(size):
            sample.see(part)
        kept.append(sample.rows())
    assert torch.equal(*kept)
    assert len(kept[0].unique(dim=0)) == 100
    assert kstest(kept[0][:, 0] / 1000, "uniform").pvalue > 1e-3
