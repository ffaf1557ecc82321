"""A network in training and a batch for it, for the tests of objectives."""

import torch
from toy_training import drawn

from rood.models import backbones
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.training.objectives import Batch

SIDE = 8
ATTACK = {"eps": 0.1, "steps": 3, "step": 0.05}


def in_training() -> Model:
    net = backbones.create("small_cnn", classes=3, channels=1, width=4, features=8)
    model = wrap(net).train().requires_grad_()
    with torch.no_grad():
        model.head.weight.mul_(20)  # logits that matter
    return model


def batch(n: int = 6, outliers: int = 16) -> Batch:
    x = torch.rand(n, 1, SIDE, SIDE, generator=drawn(0))
    o = torch.rand(outliers, 1, SIDE, SIDE, generator=drawn(1))
    return Batch(x, torch.arange(n) % 3, o)
