"""Detectors and objectives with networks of their own, against slow references of their papers."""

import math

import numpy as np
import pytest
import references as ref
import torch
from references import close
from torch import nn
from torch.nn.functional import cross_entropy
from toy_training import drawn, new_model, toy

from rood.analysis.matching import attack_pairs, ensemble_logits, noise_starts
from rood.attacks import FeatureMatch
from rood.detectors import CCU, JEM
from rood.detectors import DeepEnsemble as EnsembleDetector
from rood.metrics import auroc
from rood.models.wrap import wrap
from rood.testing import World
from rood.threat import L2
from rood.training.loop import train
from rood.training.objectives import Batch
from rood.training.objectives.deep_ensemble import DeepEnsemble
from rood.training.settings import Settings

H = 1e-6


@pytest.fixture
def double(world: World) -> World:
    return world.double()


# JEM


@pytest.mark.parametrize(
    ("make", "reference"),
    [(JEM.density, lambda z: -ref.lse(z)), (JEM.softmax, ref.margin)],
)
def test_jem_of_the_logits_equals_the_reference(double: World, make, reference) -> None:
    x = torch.cat([double.inside[:10], double.outside[:10]])
    expected = [reference(z) for z in double.model(x).logits.numpy()]
    close(make(double.model).score(x), expected)


def test_the_slope_of_jem_equals_differences_pixel_by_pixel(double: World) -> None:
    x = double.inside[:2]
    f = lambda x: np.array([ref.lse(z) for z in double.model(x).logits.numpy()])
    squared = np.zeros(len(x))
    for i in range(x[0].numel()):
        step = torch.zeros_like(x)
        step.view(len(x), -1)[:, i] = H
        squared += ((f(x + step) - f(x - step)) / (2 * H)) ** 2
    np.testing.assert_allclose(JEM.mass(double.model).score(x), np.log(squared) / 2, rtol=1e-5)


# CCU


def test_ccu_ranks_as_the_confidence_of_the_paper_does(double: World) -> None:
    detector = CCU.example(double.model).fit(double.train)
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


# the deep ensemble


def linear(seed: int) -> nn.Module:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    with torch.no_grad():
        net[1].weight.copy_(torch.randn(3, 64, generator=drawn(seed)) / 4)
        net[1].bias.zero_()
    return net


def test_the_objective_of_an_ensemble_adds_one_sign_step() -> None:
    model = wrap(linear(0)).requires_grad_()
    x = 0.3 + 0.4 * torch.rand(6, 1, 8, 8, generator=drawn(1))
    y = torch.arange(6) % 3
    loss = DeepEnsemble().loss(model, Batch(x, y), drawn(0))
    expected = 0.0
    w = model.head.weight.detach()
    for image, label in zip(x, y.tolist(), strict=True):
        p = (w @ image.flatten()).softmax(dim=0)
        slope = ((p - torch.eye(3)[label]) @ w).view(1, 8, 8)  # of -log p_y
        for point in (image, image + 0.01 * slope.sign()):
            expected += cross_entropy(w @ point.flatten(), torch.tensor(label)).item() / 6
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_the_sign_step_starts_at_the_image_and_stays_in_the_box() -> None:
    attack = DeepEnsemble().attack
    assert (attack.steps, attack.step, attack.random_start) == (1, 0.01, False)
    model, x = wrap(linear(0)), torch.zeros(4, 1, 8, 8)
    worst = DeepEnsemble().worst(model, lambda z: z[:, 0], x, drawn(0))
    assert worst.unique().tolist() == pytest.approx([0.0, 0.01])


def test_members_differ_by_their_seed_and_are_attacked_through_all_their_logits() -> None:
    """Matching every member's logits matches the entropy of their mean: the scores tie."""
    members = []
    for seed in range(2):
        model = new_model(seed)
        settings = Settings(epochs=4, batch_size=30, lr=0.05, seed=seed)
        list(train(model, DeepEnsemble(), toy(), settings=settings))
        members.append(model)
    x = toy(18, 1).pixels()
    assert not torch.equal(members[0](x).logits, members[1](x).logits)
    detector, starts = EnsembleDetector(members), noise_starts(x)
    clean = auroc(inside=detector.score(x), outside=detector.score(starts))
    found = attack_pairs(ensemble_logits(members), x, starts, FeatureMatch(), L2(4.0))
    assert np.median(found.mape) < 0.01
    assert abs(found.auroc(detector.score) - 0.5) < min(0.1, abs(clean - 0.5))
