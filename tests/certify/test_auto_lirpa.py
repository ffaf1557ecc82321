"""Bounds beside those of auto_LiRPA, where `ROOD_AUTO_LIRPA` names its folder."""

import copy
import os
import sys
import warnings

import pytest
import torch
from torch import nn

import rood
from rood import data
from rood.certify import backward, forward
from rood.certify.graph import trace
from rood.certify.region import Region
from rood.threat import Linf

FOLDER = os.environ.get("ROOD_AUTO_LIRPA", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="ROOD_AUTO_LIRPA names no folder of auto_LiRPA"),
]


class Plain(nn.Module):
    """The network with its mean and std."""

    def __init__(self, model):
        super().__init__()
        self.net, self.mean, self.std = model.net, model.mean, model.std

    def forward(self, x):
        return self.net((x - self.mean) / self.std)


@pytest.mark.parametrize("name", ["digits-aloe", "digits-ce"])
@pytest.mark.parametrize("method", ["IBP", "CROWN-IBP", "CROWN"])
def test_bounds_of_logits_are_those_of_auto_lirpa(name, method, monkeypatch):
    monkeypatch.setattr(sys, "path", [*FOLDER.split(os.pathsep), *sys.path])
    model = copy.deepcopy(rood.zoo.load(name)).double()
    x, threat = data.load("digits:near", limit=2).pixels().double(), Linf(0.02)
    low, high = theirs(model, x, threat, method)
    operations, region = trace(model, (1, 28, 28)), Region.around(x, threat, torch.float64)
    slow = method == "CROWN"
    found = (backward.crown if slow else forward.intervals)(operations, region)
    box = found.boxes[operations.logits]
    if method != "IBP":
        a = torch.eye(model.classes).double().repeat(len(x), 1)
        owner = torch.arange(len(x)).repeat_interleave(model.classes)
        ours = backward.both_ends(found, operations.logits, a, owner)
        box = box.within(ours.reshaped(box.low))
    width = high - low
    assert bool(((box.high - box.low) <= 1.01 * width).all())
    assert bool(((box.low - low).abs() <= 0.01 * width).all())


def theirs(model, x, threat, method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from auto_LiRPA import BoundedModule, BoundedTensor, PerturbationLpNorm

        net = BoundedModule(Plain(model).eval(), x[:1], bound_opts={"conv_mode": "matrix"})
        ends = (x - threat.eps).clamp(min=0), (x + threat.eps).clamp(max=1)
        ball = PerturbationLpNorm(norm=float("inf"), eps=threat.eps, x_L=ends[0], x_U=ends[1])
        return net.compute_bounds(x=(BoundedTensor(x, ball),), method=method)
