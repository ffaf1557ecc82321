"""The objective of a deep ensemble: cross-entropy at the image and one sign step away."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from toy_training import drawn

from rood.models.wrap import wrap
from rood.training.objectives import Batch, DeepEnsemble


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
