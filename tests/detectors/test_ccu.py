"""CCU: mixtures with known answers, and a certificate that no attack gets past."""

import math
from pathlib import Path

import numpy as np
import pytest
import references as ref
import torch
from torch import Tensor
from toy_training import SIDE, drawn, toy

from rood.attacks import PGD, WorstOf
from rood.data.base import ImageSet
from rood.detectors import CCU as Detector
from rood.errors import InputError
from rood.goals import look_in
from rood.models import backbones, checkpoint
from rood.models.generative.mixtures import Kept, Mixtures, fitted, principal, spherical
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.testing import World
from rood.threat import L2, Linf
from rood.training.loop import train
from rood.training.objectives import Batch
from rood.training.objectives.ccu import CCU, blended
from rood.training.settings import Settings

SMALL = {"axes": 6, "centroids": 4}


def images(n: int = 60, seed: int = 0) -> Tensor:
    return toy(n, seed).pixels()


def outliers(n: int = 60) -> Tensor:
    return torch.rand(n, 1, SIDE, SIDE, generator=drawn(7))


@pytest.fixture
def mixtures() -> Mixtures:
    return fitted(images(), outliers(), drawn(0), **SMALL)


# the mixtures


def test_centroids_find_clusters_that_are_there() -> None:
    places = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], dtype=torch.float64)
    spread = torch.randn(300, 2, generator=drawn(1), dtype=torch.float64)
    u = places[torch.arange(300) % 3] + 0.5 * spread
    centres, var = spherical(u, 2, 3, drawn(0))
    order = [int((centres - p).norm(dim=1).argmin()) for p in places]
    assert sorted(order) == [0, 1, 2]
    assert (centres[order] - places).norm(dim=1).max() < 0.15
    assert var.item() == pytest.approx(0.25, rel=0.1)
    again, _ = spherical(u, 2, 3, drawn(0))
    assert torch.equal(centres, again)


def test_a_centroid_that_nothing_is_near_stays_finite() -> None:
    u = torch.zeros(8, 3, dtype=torch.float64)
    centres, var = spherical(u, 3, 4, drawn(0))
    assert centres.isfinite().all()
    assert var > 0


def test_axes_and_scales_are_those_of_a_singular_value_decomposition() -> None:
    x = torch.randn(50, 1, 3, 4, generator=drawn(2)) * torch.linspace(0.2, 2, 12).view(1, 1, 3, 4)
    v, scales = principal(x, 5)
    flat = x.flatten(1).double().numpy()
    _, s, vt = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)
    std = s / math.sqrt(len(flat))
    np.testing.assert_allclose(scales[:-1], std[:5], rtol=1e-6)
    np.testing.assert_allclose(scales[-1], math.sqrt((std[5:] ** 2).mean()), rtol=1e-6)
    np.testing.assert_allclose(np.abs((v.numpy() * vt[:5]).sum(axis=1)), 1, rtol=1e-6)


def test_images_that_are_all_the_same_are_refused() -> None:
    with pytest.raises(InputError, match="expected images that differ"):
        fitted(torch.full((9, 1, 4, 4), 0.5), None, drawn(0), axes=2, centroids=2)


def test_too_few_images_for_the_centroids_are_refused() -> None:
    with pytest.raises(InputError, match=r"at least 100 images.* got 60: lower centroids"):
        fitted(images(), outliers(200), drawn(0))
    with pytest.raises(InputError, match=r"at least 4 images.* got 3: lower centroids"):
        fitted(images(), outliers(3), drawn(0), **SMALL)


def test_densities_are_the_formula_by_hand(mixtures: Mixtures) -> None:
    x = torch.cat([images(5, 3), outliers(5)])
    got = mixtures.log_densities(x)
    v, scales = mixtures.axes.numpy(), mixtures.scales.numpy()
    n = SIDE * SIDE
    for i, row in enumerate(x.flatten(1).double().numpy()):
        along = v @ row
        u = np.concatenate([along / scales[:-1], (row - v.T @ along) / scales[-1]])
        for part, centres, log_var in (
            (got[0], mixtures.inside, mixtures.log_var_in),
            (got[1], mixtures.outside, mixtures.log_var_out),
        ):
            each = [
                -n / 2 * lv - ((u - c) ** 2).sum() / (2 * math.exp(lv))
                for c, lv in zip(centres.numpy(), log_var.tolist(), strict=True)
            ]
            top = max(each)
            by_hand = top + math.log(sum(math.exp(e - top) for e in each) / len(each))
            assert part[i].item() == pytest.approx(by_hand, rel=1e-9)


def test_outliers_are_spread_at_least_twice_as_far(mixtures: Mixtures) -> None:
    alike = fitted(images(), images(60, 3), drawn(0), **SMALL)
    for found in (mixtures, alike):
        assert found.log_var_out.min() >= found.log_var_in.max() + math.log(4) - 1e-12
    alone = fitted(images(), None, drawn(0), **SMALL)
    assert torch.equal(alone.inside, alone.outside)
    torch.testing.assert_close(alone.log_var_out, alone.log_var_in + math.log(4))


def test_no_direction_is_stretched_beyond_what_is_said(mixtures: Mixtures) -> None:
    rough = mixtures._replace(axes=mixtures.axes.half().float() * 1.1)  # not orthonormal
    for m in (mixtures, rough):
        eye = torch.eye(SIDE * SIDE).view(-1, 1, SIDE, SIDE)
        longest = torch.linalg.svdvals(m.coordinates(eye))[0].item()
        assert m.stretch() == pytest.approx(longest, rel=1e-6)
        assert m.radius(L2(0.5)) == pytest.approx(0.5 * longest, rel=1e-6)
        assert m.radius(Linf(0.1)) == pytest.approx(0.1 * SIDE * longest, rel=1e-6)


# the detector


@pytest.fixture
def detector(world: World) -> Detector:
    return Detector.example(world.model).fit(world.train)


def test_the_score_is_the_confidence_of_the_paper_by_hand(world: World) -> None:
    w = world.double()
    detector = Detector.example(w.model).fit(w.train)
    x = torch.cat([w.inside[:10], w.outside[:10]])
    p = w.model(x).logits.softmax(dim=1).amax(dim=1)
    odds = detector._mixtures().log_ratio(x)
    share = torch.sigmoid(odds)
    q = p * share + (1 - share) / 3
    scores = detector.score(x)
    # where q has digits left: beyond, it ties at 1 and at 1/3, and the score does not
    seen = (q > 1 / 3 + 1e-9) & (q < 1 - 1e-9)
    assert seen.sum() > 3
    by_hand = ((1 - q) / (q - 1 / 3)).log()
    torch.testing.assert_close(scores[seen], by_hand[seen], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(detector.confidence(scores), q, rtol=1e-9, atol=1e-9)


def test_far_away_all_confidence_is_gone_and_scores_still_differ(detector: Detector) -> None:
    x = torch.rand(8, 3, 8, 8, generator=drawn(3)).round()
    s = detector.score(x)
    torch.testing.assert_close(detector.confidence(s), torch.full((8,), 1 / 3))
    assert len(s.unique()) == 8


@pytest.mark.parametrize("radius", [0.0, 0.5, 3.0])
def test_nothing_within_the_radius_scores_below_the_certificate(
    detector: Detector, world: World, radius: float
) -> None:
    x = torch.cat([world.inside[:6], world.outside[:6]])
    least = detector.least_score(x, radius)
    eps = radius / detector._mixtures().stretch()
    for seed in range(20):
        move = torch.randn(x.shape, generator=drawn(seed))
        moved = (x + eps * move / move.flatten(1).norm(dim=1).view(-1, 1, 1, 1)).clamp(0, 1)
        assert (detector.score(moved).double() >= least - 1e-3).all()
    assert (detector.least_score(x, radius + 1) <= least).all()


@pytest.mark.parametrize("threat", [L2(0.1), L2(0.5), L2(2.0), Linf(8 / 255)])
@pytest.mark.parametrize("attack", [PGD(steps=20), WorstOf(tier="quick")])
def test_no_attack_gets_past_the_certificate(
    detector: Detector, world: World, threat: L2 | Linf, attack: PGD | WorstOf
) -> None:
    x = world.outside[:10]
    found = attack(look_in(detector, world.inside[:10]), x, threat, drawn(0))
    radius = detector.radius(threat)
    attacked, least = detector.score(found).double(), detector.least_score(x, radius)
    assert (attacked >= least - 1e-3).all()
    most = detector.most_confidence(x, radius)
    assert (detector.confidence(attacked) <= most + 1e-9).all()
    assert (attacked < detector.score(x)).all()  # not for want of trying


def test_the_certificate_is_the_formula_by_hand(world: World) -> None:
    """Every centroid of the images nearer by the radius, every one of the outliers further."""
    detector = Detector(world.model, weight=3.0, centroids=4, axes=5).fit(world.train)
    x, m, radius = world.outside[:4], detector._mixtures(), 0.7
    n = x[0].numel()
    for u, got in zip(m.coordinates(x), detector.least_score(x, radius), strict=True):
        parts = []
        for centres, log_var, way in (
            (m.inside, m.log_var_in, -1),
            (m.outside, m.log_var_out, +1),
        ):
            each = [
                -n / 2 * lv - max(0.0, (u - c).norm().item() + way * radius) ** 2 / 2 / math.exp(lv)
                for c, lv in zip(centres, log_var.tolist(), strict=True)
            ]
            top = max(each)
            parts.append(top + math.log(sum(math.exp(e - top) for e in each)))
        beta = parts[0] - parts[1] - math.log(3)
        assert got.item() == pytest.approx(-beta, rel=1e-6)
        most = (1 + 3 * math.exp(beta)) / (3 * (1 + math.exp(beta)))
        assert detector.confidence(got[None]).item() == pytest.approx(most, rel=1e-6)


def test_the_certificate_says_something(detector: Detector, world: World) -> None:
    """Around images far from all others, confidence is bounded near that of a guess."""
    far = torch.rand(8, 3, 8, 8, generator=drawn(3)).round()
    assert (detector.most_confidence(far, detector.radius(L2(0.2))) < 1 / 3 + 1e-6).all()


# the objective


def certified(size: int = SIDE) -> Model:
    settings = {"backbone": "small_cnn", "architecture": {"width": 4, "features": 8}}
    net = backbones.create("certified", classes=3, channels=1, size=size, **settings, **SMALL)
    return wrap(net)


def test_log_q_blends_the_softmax_with_the_uniform() -> None:
    z = torch.tensor([[2.0, 0.0, -1.0]] * 3)
    odds = torch.tensor([-800.0, 0.3, 800.0], dtype=torch.float64)
    share = torch.sigmoid(odds)[:, None]
    q = z.double().softmax(dim=1) * share + (1 - share) / 3
    torch.testing.assert_close(blended(z, odds).double(), q.log(), rtol=1e-6, atol=1e-6)


def test_the_loss_is_the_formula_and_the_mixtures_follow_it() -> None:
    objective = CCU(rate=1e-3, weight=2.0)
    model = certified().train().requires_grad_()
    given = Batch(images(), torch.arange(60) % 3, outliers())
    kept = objective.begin(model, given, drawn(0))
    assert kept is model.net.mixtures
    before = {n: b.clone() for n, b in kept.named_buffers()}
    loss = objective.loss(model.eval(), given._replace(memory=kept), drawn(0))
    old = Mixtures(**before)
    log_in, log_out = old.log_densities(torch.cat([given.x, given.outliers]))
    share = torch.sigmoid(log_in - log_out - math.log(2))[:, None]
    z = model(torch.cat([given.x, given.outliers])).logits.double()
    q = (z.softmax(dim=1) * share + (1 - share) / 3).log()
    by_hand = -(q[:60].gather(1, given.y[:, None]).mean() + q[60:].mean()) / 2
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-5)
    for name in ("inside", "outside", "log_var_in", "log_var_out"):
        assert not torch.equal(before[name], kept.get_buffer(name)), name
    assert torch.equal(before["axes"], kept.axes)
    evidence = lambda m: sum(
        torch.logaddexp(
            *(v + w for v, w in zip(m.log_densities(x), (0, math.log(2)), strict=True))
        ).mean()
        for x in (given.x, given.outliers)
    )
    assert evidence(kept.value) > evidence(old)
    assert kept.value.log_var_out.min() >= kept.value.log_var_in.max() + math.log(4) - 1e-6


def test_a_step_leaves_outliers_spread_at_least_twice_as_far() -> None:
    model, given = certified(), Batch(images(), torch.arange(60) % 3, outliers())
    kept = CCU().begin(model, given, drawn(0))
    kept.get_buffer("log_var_out").sub_(9.0)
    CCU(rate=0.0).loss(model, given._replace(memory=kept), drawn(0))
    torch.testing.assert_close(kept.value.log_var_out, kept.value.log_var_in + math.log(4))


def test_trained_mixtures_are_kept_with_the_network(tmp_path: Path) -> None:
    settings = Settings(epochs=2, batch_size=30)
    others = ImageSet(name="others", images=(255 * outliers(90)).to(torch.uint8))
    model = certified()
    list(train(model, CCU(), toy(), outliers=others, settings=settings))
    card = {"shape": [1, SIDE, SIDE], "classes": ["a", "b", "c"]}
    checkpoint.save(model, tmp_path / "net.safetensors", card)
    again = checkpoint.load(tmp_path / "net.safetensors")
    assert isinstance(again.net.mixtures, Kept)
    scores = [Detector(m).fit([]).score(outliers(9)) for m in (model, again)]
    assert torch.equal(*scores)
    other = Detector(certified(), **SMALL).fit([(images(), torch.zeros(60).long())])
    assert not torch.equal(other.score(outliers(9)), scores[0])


def test_images_that_the_network_has_no_room_for_are_refused() -> None:
    given = Batch(images(), torch.arange(60) % 3, outliers())
    with pytest.raises(InputError, match=r"images of 144 numbers.* got 64: set its size"):
        CCU().loss(certified(size=12), given, drawn(0))


@pytest.mark.parametrize("values", [{"weight": 0.0}, {"rate": -1.0}, {"centroids": 0}, {"axes": 0}])
def test_settings_that_make_no_objective_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(InputError, match=r"expected weight > 0"):
        CCU(**values)


def test_ccu_ranks_as_the_confidence_of_the_paper_does(double: World) -> None:
    detector = Detector.example(double.model).fit(double.train)
    x = torch.cat([double.inside[:20], double.outside[:20]])
    axes, scales = detector.axes_.numpy(), detector.scales_.numpy()
    n, expected = x[0].numel(), []
    for row, z in zip(x.flatten(1).numpy(), double.model(x).logits.numpy(), strict=True):
        along = axes @ row
        u = np.concatenate([along / scales[:-1], (row - axes.T @ along) / scales[-1]])
        log_g = [
            ref.lse(
                np.array(
                    [
                        -n / 2 * lv - ((u - c) ** 2).sum() / (2 * math.exp(lv))
                        for c, lv in zip(centres.numpy(), log_var.tolist(), strict=True)
                    ]
                )
            )
            for centres, log_var in (
                (detector.inside_, detector.log_var_in_),
                (detector.outside_, detector.log_var_out_),
            )
        ]
        log_p = z - ref.lse(z)
        top = np.logaddexp(log_p.max() + log_g[0], log_g[1] - math.log(3))
        expected.append(-(top - np.logaddexp(*log_g)))
    got = detector.score(x).numpy()
    # -log q ties far away and near 0, where the score goes on: no pair may be turned round
    for i in range(len(got)):
        for j in range(len(got)):
            if expected[i] > expected[j] + 1e-9:
                assert got[i] > got[j]
