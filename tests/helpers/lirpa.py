"""Bounds of logits by auto_LiRPA, whose folder `ROOD_AUTO_LIRPA` names, and by ours."""

import os
import sys
import warnings
from contextlib import contextmanager

import torch
from torch import nn

from rood.certify import backward, forward
from rood.certify.graph import trace
from rood.certify.region import Region
from rood.numerics.box import Box

FOLDER = os.environ.get("ROOD_AUTO_LIRPA", "")
METHODS = ("IBP", "CROWN-IBP", "CROWN")


class Plain(nn.Module):
    """The network with its mean and std."""

    def __init__(self, model):
        super().__init__()
        self.net, self.mean, self.std = model.net, model.mean, model.std

    def forward(self, x):
        return self.net((x - self.mean) / self.std)


def theirs(model, x, threat, method):
    """Bounds of all logits by auto_LiRPA; model and images in float64."""
    with warnings.catch_warnings(), doubles():
        warnings.simplefilter("ignore")
        sys.path[:0] = FOLDER.split(os.pathsep)
        from auto_LiRPA import BoundedModule, BoundedTensor, PerturbationLpNorm

        net = BoundedModule(Plain(model).eval(), x[:1], bound_opts={"conv_mode": "matrix"})
        ends = (x - threat.eps).clamp(min=0), (x + threat.eps).clamp(max=1)
        ball = PerturbationLpNorm(norm=float("inf"), eps=threat.eps, x_L=ends[0], x_U=ends[1])
        found = net.compute_bounds(x=(BoundedTensor(x, ball),), method=method)
        return Box(*(v.detach() for v in found))


@contextmanager
def doubles():
    """It starts its coefficients in the default precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@torch.no_grad()
def ours(model, x, threat, method):
    """The same by rood.certify, from the same boxes of pixels."""
    operations = trace(model, tuple(x.shape[1:]))
    region = Region.around(x, threat, torch.float64)
    found = (backward.crown if method == "CROWN" else forward.intervals)(operations, region)
    box = found.boxes[operations.logits]
    if method == "IBP":
        return box
    a = torch.eye(model.classes).double().repeat(len(x), 1)
    owner = torch.arange(len(x)).repeat_interleave(model.classes)
    tight = backward.both_ends(found, operations.logits, a, owner)
    return box.within(tight.reshaped(box.low))
