"""The objective that trains a scalar head on its certificates."""

import itertools
from dataclasses import replace

import pytest
import torch
from tiny_nets import images, tiny
from torch import nn
from torch.nn.functional import cross_entropy, softplus

from rood.attacks.pgd import PGD
from rood.certify import bounds
from rood.data.base import ImageSet
from rood.detectors import Head
from rood.errors import CapabilityError, InputError
from rood.models.scored import scored
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.testing.world import toy_world
from rood.threat import Linf
from rood.training import recipe
from rood.training.loop import train
from rood.training.objectives import CertifiedHead
from rood.training.objectives.base import Batch
from rood.training.objectives.certified_head import bounded
from rood.training.settings import Settings

EPS = 0.1
FULL = CertifiedHead(eps=EPS, weight=0.5)


def network():
    """Two layers on four pixels, in float64; the head is a difference of features."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    g = generator(0, "certified head")
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=g))
    return seen(scored(wrap(net, mean=[0.4], std=[0.5])), given().x)


def seen(model, x):
    """The model, which finds the layer of its logits when it first runs."""
    with torch.no_grad():
        model(x)
    return model


def given(n=6, outliers=4):
    x = torch.rand(n + outliers, 1, 2, 2, generator=generator(1, "certified head")).double()
    return Batch(x[:n], torch.arange(n) % 3, x[n:])


def by_hand(model, x, sign, eps, crown, row=None):
    """Bounds of the head, or of a logit, by loops over weights: intervals and CROWN-IBP, mixed."""
    first, last = model.net.net[1], model.net.score if row is None else model.net.net[3]
    head = last.weight[row or 0] * sign
    pixels = x.flatten().tolist()
    low = [max(p - eps, 0.0) for p in pixels]
    high = [min(p + eps, 1.0) for p in pixels]
    mean, std = model.mean.item(), model.std.item()
    interval = line = sign * last.bias[row or 0].item()
    slopes = [0.0] * 4
    for j in range(5):
        w = [v / std for v in first.weight[j].tolist()]
        b = first.bias[j].item() - sum(w) * mean
        ends = [(v * a, v * c) for v, a, c in zip(w, low, high, strict=True)]
        lo, hi = b + sum(min(e) for e in ends), b + sum(max(e) for e in ends)
        a = head[j].item()
        interval += min(a * max(lo, 0), a * max(hi, 0))
        if lo < 0 < hi:  # below the chord, above 0 or x
            chord = hi / (hi - lo)
            k, t = (chord, -chord * lo) if a < 0 else (float(hi > -lo), 0.0)
        else:
            k, t = float(lo >= 0), 0.0
        line += a * (k * b + t)
        slopes = [s + a * k * v for s, v in zip(slopes, w, strict=True)]
    line += sum(min(s * a, s * c) for s, a, c in zip(slopes, low, high, strict=True))
    return (1 - crown) * interval + crown * line


@pytest.mark.parametrize("crown", [0.0, 0.3, 1.0])
def test_bounds_are_those_by_hand(crown):
    model, batch = network(), given()
    for x, sign in itertools.product(batch.x.split(1), (-1.0, 1.0)):
        z, found = bounded(model, x, torch.tensor([sign]).double(), EPS, crown)
        assert found.item() == pytest.approx(by_hand(model, x[0], sign, EPS, crown), abs=1e-5)
        for k, end in enumerate((z.low if sign > 0 else -z.high)[0].tolist()):
            assert end == pytest.approx(by_hand(model, x[0], sign, EPS, 0.0, k), abs=1e-5)


@pytest.mark.parametrize(
    ("done", "clean", "eps", "crown"),
    [(0.0, 1.0, 0.0, 1.0), (0.25, 0.6, 0.05, 0.5), (0.5, 0.2, 0.1, 0.0), (1.0, 0.2, 0.1, 0.0)],
)
def test_loss_is_the_formula_along_the_ramps(done, clean, eps, crown):
    model, batch = network(), given()._replace(done=done)
    objective = CertifiedHead(eps=EPS, weight=0.5, expose=0.3, ramp=0.5, kappa=0.2)

    def total(out, far, ends):
        """Of images and outliers; ends: what the logits are at least and at most."""
        worst = [
            [low if k == y else high for k, (low, high) in enumerate(zip(*both, strict=True))]
            for both, y in zip(zip(*(e[:6] for e in ends), strict=True), batch.y, strict=True)
        ]
        classes = cross_entropy(torch.tensor(worst), batch.y)
        low, high = (torch.tensor(e[6:]) for e in ends)
        uniform = (high.logsumexp(dim=1) - low.mean(dim=1)).mean()
        return classes + softplus(out).mean() + 0.5 * softplus(-far).mean() + 0.3 * uniform

    both = torch.cat([batch.x, batch.outliers])
    seen = model(both)
    logits = seen.logits.tolist()
    wanted = clean * total(seen.head[:6], seen.head[6:], (logits, logits))
    ends = [
        [[s * by_hand(model, x, s, eps, 0.0, k) for k in range(3)] for x in both]
        for s in (1.0, -1.0)
    ]
    heads = [
        torch.tensor([s * by_hand(model, x, s, eps, crown) for x in some]).double()
        for some, s in ((batch.x, -1.0), (batch.outliers, 1.0))
    ]
    wanted = wanted + (1 - clean) * total(*heads, ends)
    found = objective.loss(model, batch, generator(0, "loss"))
    assert found.item() == pytest.approx(float(wanted), abs=1e-4)


def test_one_side_is_bounded_alone_where_it_is_asked_for():
    """The loss of the images is the clean one, that of the outliers the bounded one."""
    model, batch = network(), given()
    alone = CertifiedHead(eps=EPS, weight=0.5, expose=0.0, sides="outside", crown=0.0)
    with torch.no_grad():
        out = model(batch.x)
    far = [by_hand(model, o, 1.0, EPS, 0.0) for o in batch.outliers]
    wanted = cross_entropy(out.logits, batch.y) + softplus(out.head).mean()
    wanted = wanted + 0.5 * softplus(-torch.tensor(far)).mean()
    found = alone.loss(model, batch, generator(0, "loss"))
    assert found.item() == pytest.approx(float(wanted), abs=1e-4)
    without = replace(alone, classes=0.0).loss(model, batch, generator(0, "loss"))
    classes = cross_entropy(out.logits, batch.y).item()
    assert found.item() - without.item() == pytest.approx(classes, abs=1e-6)


@pytest.mark.parametrize("done", [0.0, 0.2, 0.9])
@pytest.mark.parametrize("crown", [0.0, 1.0])
def test_a_recorded_step_reads_how_much_is_done_from_a_tensor(done, crown):
    model, objective = network(), CertifiedHead(eps=EPS, kappa=0.1, crown=crown)
    loss = lambda done: objective.loss(model, given()._replace(done=done), generator(0, "loss"))
    assert loss(torch.tensor(done)).item() == pytest.approx(loss(done).item(), rel=1e-6)


def test_no_attack_makes_the_loss_of_the_head_larger():
    model, batch = network().float(), given()
    batch = batch._replace(x=batch.x.float(), outliers=batch.outliers.float())
    both = torch.cat([batch.x, batch.outliers])
    sign = torch.tensor([-1.0] * 6 + [1.0] * 4)
    worst = PGD(steps=30)(lambda x: -sign * model(x).head, both, Linf(EPS), generator(0, "pgd"))
    reached = sign * model(worst).head
    for crown in (0.0, 1.0):
        assert bool((bounded(model, both, sign, EPS, crown)[1] <= reached + 1e-5).all())


@pytest.mark.parametrize("crown", [0.0, 0.5])
def test_gradients_are_those_of_finite_differences(crown):
    model, both = network().requires_grad_(), torch.cat([given().x, given().outliers])
    sign = torch.tensor([-1.0] * 6 + [1.0] * 4).double()
    total = lambda: bounded(model, both, sign, EPS, crown)[1].square().sum()
    learnt = [p for n, p in model.named_parameters() if "net.3" not in n]  # all but the classes
    for p, slope in zip(learnt, torch.autograd.grad(total(), learnt), strict=True):
        step = 1e-6 * torch.randn(p.shape, generator=generator(0, "step")).double()
        ends = []
        for sign_of_step in (1, -1):
            with torch.no_grad():
                p.add_(sign_of_step * step)
                ends.append(total().item())
                p.sub_(sign_of_step * step)
        wanted = (slope * step).sum().item()
        assert (ends[0] - ends[1]) / 2 == pytest.approx(wanted, rel=1e-3, abs=1e-10)


def test_batch_norm_counts_with_its_running_statistics():
    """The bounds of a network in training are those of the certificate."""
    model, x = scored(tiny("strides").float()), images(4).float()
    box = bounds(Head(model.eval()), x, Linf(0.01), "ibp")
    model.train()
    for sign, end in ((1.0, box.low), (-1.0, -box.high)):
        _, found = bounded(model, x, torch.full((4,), sign), 0.01, 0.0)
        torch.testing.assert_close(found.double(), end, rtol=1e-2, atol=2e-3)
    assert model.training


def test_training_on_certificates_certifies():
    """A few steps on the toy world: bounds of the sides, which overlapped, come apart."""
    world = toy_world()
    net = nn.Sequential(nn.Flatten(), nn.Linear(world.inside[0].numel(), 16), nn.ReLU())
    net = nn.Sequential(*net, nn.Linear(16, 4))
    with torch.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(torch.randn(p.shape, generator=generator(i, "small")) / 30)
    x, y = world.train[0]
    model = seen(scored(wrap(net)), x)
    near, far = ImageSet("in", x, y), ImageSet("out", world.outside)
    settings = Settings(epochs=12, batch_size=16, optimizer="adam", lr=3e-3, weight_decay=0.0)
    gap = lambda: float(
        bounds(Head(model), world.outside, Linf(0.02), "ibp").low.mean()
        - bounds(Head(model), world.inside, Linf(0.02), "ibp").high.mean()
    )
    before = gap()
    for _ in train(model, CertifiedHead(eps=0.02), near, outliers=far, settings=settings):
        pass
    assert before < 0 < gap()


def test_the_loop_says_how_much_is_done():
    shares = []

    class Watching(CertifiedHead):
        def compute(self, model, batch, generator):
            shares.append(batch.done)
            return super().compute(model, batch, generator)

    x = given().x.float()
    some = ImageSet("in", x, torch.arange(6) % 3)
    settings = Settings(epochs=2, batch_size=3, lr=0.01)
    list(train(network().float(), Watching(), some, outliers=some, settings=settings))
    assert shares == [0.0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize(
    "wrong", [{"ramp": 1.5}, {"kappa": -0.1}, {"crown": 2.0}, {"weight": -1}, {"classes": -1.0}]
)
def test_options_are_checked(wrong):
    said = "weight" if "classes" in wrong else next(iter(wrong))
    with pytest.raises(InputError, match=said):
        replace(FULL, **wrong)


def test_networks_without_a_scalar_head_are_refused():
    with pytest.raises(CapabilityError, match=r"scalar head.*scored=true"):
        FULL.loss(
            toy_world().model, Batch(*toy_world().train[0], toy_world().outside), generator(0)
        )


def test_a_recipe_gives_eps_without_steps():
    found = recipe.read(
        {"data": "digits:inside", "objective": {"name": "certified_head", "eps": "8/255"}}, "here"
    )
    assert found.objective == CertifiedHead(eps=8 / 255)
