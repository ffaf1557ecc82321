"""Normalisation layers by name."""

import math
from typing import Literal

from torch import nn

from rood.errors import InputError
from rood.shapes import Images

Norm = Literal["batch", "instance", "group"]


def normaliser(norm: Norm, channels: int) -> nn.Module:
    """A layer with learnt scale and shift; group norm has up to 32 groups, arXiv:1803.08494."""
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "instance":
        return InstanceNorm(channels)
    if norm == "group":
        groups = math.gcd(32, channels)
        # one channel per group would be instance norm
        return nn.GroupNorm(groups if groups < channels else max(1, channels // 2), channels)
    raise InputError(f"expected norm 'batch', 'instance' or 'group', got {norm!r}")


class InstanceNorm(nn.GroupNorm):
    """Group norm with one channel per group: torch's instance norm fails on an empty batch."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels)

    def forward(self, x: Images) -> Images:
        if x.shape[2] * x.shape[3] == 1:
            raise InputError(
                "expected maps of several pixels for instance norm, got 1x1, which it would set to "
                "0: use larger images or another norm"
            )
        return super().forward(x)
