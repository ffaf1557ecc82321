"""What PRO rests on: shifts, landscapes and the bounds of its claim, against loops."""

import itertools
import math

import numpy as np
import pytest
import references as ref
import torch
from torch import nn

from rood.analysis.rectification import claim_bounds, entropy_at_most, landscape, score_shift
from rood.attacks import PGD
from rood.detectors import MSP, PRO, Energy, Entropy, Mahalanobis
from rood.models.wrap import wrap
from rood.threat import L2, Linf


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


# the shift


@pytest.mark.parametrize(("base", "score"), [(MSP, ref.margin), (Energy, lambda z: -ref.lse(z))])
def test_the_shift_is_the_furthest_a_score_gets_along_pros_steps(base, score, double):
    x = torch.cat([double.inside[:1], double.outside[:1]])
    logits = ref.array_logits(double.model)
    of = lambda v: np.array([score(z) for z in logits(v)])
    want = []
    for image in x.numpy():
        v, furthest = image, 0.0
        for _ in range(2):
            v = v + 0.05 * np.sign(ref.slopes(of, v))
            furthest = max(furthest, abs(of(v[None]) - of(image[None])).item())
        want.append(furthest)
    got = score_shift(PRO(base(double.model), eps=0.05, steps=2), x)
    ref.close(got, want, rtol=1e-6)


def test_the_shift_of_no_steps_is_nothing(double):
    pro = PRO(Entropy(double.model), eps=0.1, steps=0)
    assert score_shift(pro, double.inside).abs().max() == 0


def test_the_shift_counts_falls_as_well_as_rises(double):
    """Far too long a step: what falls is missed by the score, not by the shift."""
    pro = PRO(Entropy(double.model), eps=0.4, steps=1)
    x = double.outside
    fell = pro.score(x) == pro.base.score(x)
    assert fell.any()
    assert (score_shift(pro, x)[fell] > 0).all()


# the landscape


def test_the_centre_of_the_landscape_is_the_score(double):
    d = Mahalanobis(double.model).fit(double.train)
    x = double.inside[:4]
    grid = landscape(d.score_images, x, generator(), radius=0.01, points=5)
    assert grid.shape == (4, 5, 5)
    assert torch.equal(grid[:, 2, 2], d.score(x))


def test_the_landscape_lies_on_two_directions_of_signs(double):
    seen = []
    x = double.inside[:2]

    def score(v):
        seen.append(v.clone())
        return v.flatten(1).sum(dim=1)

    grid = landscape(score, x, generator(), radius=0.02, points=3)
    moved = {
        (i, j): v - x for (i, j), v in zip(itertools.product(range(3), range(3)), seen, strict=True)
    }
    u, v = moved[2, 1] / 0.02, moved[1, 2] / 0.02
    for direction in (u, v):
        assert torch.allclose(direction.abs(), torch.ones_like(direction))
    assert torch.equal(u[0].sign(), u[1].sign())  # the same for every image
    assert not torch.allclose(u, v)
    for (i, j), d in moved.items():
        assert torch.allclose(d, 0.02 * ((i - 1) * u + (j - 1) * v), atol=1e-12)
        ref.close(grid[:, i, j], seen[3 * i + j].flatten(1).sum(dim=1).numpy())


def test_the_landscape_depends_on_its_generator_alone(double):
    s = MSP(double.model).score_images
    a, b, c = (
        landscape(s, double.inside[:2], generator(i), radius=0.1, points=3) for i in (0, 0, 1)
    )
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


# the bounds


def labels(double):
    return torch.arange(len(double.inside)) % 3


@pytest.mark.parametrize("threat", [Linf(0.0), Linf(4 / 255), L2(0.5)])
def test_what_is_found_keeps_the_bounds(threat, double):
    b = claim_bounds(double.model, double.inside, labels(double), threat, PGD(steps=5), generator())
    assert b.msp_bound == pytest.approx(math.exp(-b.worst_loss), rel=1e-12)
    assert b.msp_found >= b.msp_bound - 1e-12
    assert b.entropy_found <= b.entropy_bound + 1e-12
    assert b.entropy_bound == pytest.approx(entropy_at_most(b.msp_bound, 3), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_bounds_hold_on_small_random_networks(seed, double):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 12), nn.Tanh(), nn.Linear(12, 5)).double()
    net[3].weight.data.mul_(4)
    model = wrap(net)
    x, y = double.inside[:20], torch.randint(5, (20,), generator=generator(seed))
    b = claim_bounds(model, x, y, Linf(0.05), PGD(steps=3), generator(seed))
    assert b.msp_bound <= b.msp_found + 1e-12 <= 1 + 1e-9
    assert b.entropy_found <= b.entropy_bound + 1e-12 <= math.log(5) + 1e-9


def test_without_room_to_move_the_bounds_are_of_the_images_themselves(double):
    y = labels(double)
    z = double.model(double.inside).logits.tolist()
    b = claim_bounds(double.model, double.inside, y, Linf(0.0), PGD(steps=2), generator())
    loss = [ref.lse(row) - row[k] for row, k in zip(z, y.tolist(), strict=True)]
    assert b.worst_loss == pytest.approx(np.mean(loss), rel=1e-9)
    assert b.msp_found == pytest.approx(np.mean([ref.max_probability(r) for r in z]), rel=1e-9)
    assert b.entropy_found == pytest.approx(np.mean([ref.entropy(r) for r in z]), rel=1e-9)


def test_room_to_move_makes_every_case_worse(double):
    found = [
        claim_bounds(
            double.model, double.inside, labels(double), Linf(e), PGD(steps=5), generator()
        )
        for e in (0.0, 4 / 255, 16 / 255)
    ]
    for a, b in itertools.pairwise(found):
        assert b.worst_loss > a.worst_loss
        assert b.msp_found < a.msp_found
        assert b.entropy_found > a.entropy_found


# phi


@pytest.mark.parametrize("k", [2, 3, 7])
def test_no_distribution_has_more_entropy_than_phi_allows(k):
    g = np.random.default_rng(k)
    for p in g.dirichlet([0.4] * k, size=400):
        h = -sum(v * math.log(v) for v in p if v > 0)
        for v in p:
            assert h <= entropy_at_most(float(v), k) + 1e-12


@pytest.mark.parametrize("k", [2, 3, 7])
@pytest.mark.parametrize("q", [0.0, 0.05, 0.2, 0.5, 0.9, 1.0])
def test_phi_is_reached(k, q):
    """By brute force over p_y >= q: what is left over is spread evenly."""
    highest = 0.0
    for own in np.linspace(q, 1, 20001):
        rest = (1 - own) / (k - 1)
        p = [own, *[rest] * (k - 1)]
        highest = max(highest, -sum(v * math.log(v) for v in p if v > 0))
    assert entropy_at_most(q, k) == pytest.approx(highest, abs=1e-7)


def test_phi_falls(double):
    values = [entropy_at_most(q, 10) for q in np.linspace(0, 1, 101)]
    assert all(b <= a + 1e-15 for a, b in itertools.pairwise(values))
    assert values[0] == math.log(10)
    assert values[-1] == 0
