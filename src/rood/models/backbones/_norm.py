"""Normalisation layers by name."""

import math
from typing import Literal

from torch import nn

from rood.errors import InputError
from rood.shapes import Images

Norm = Literal["batch", "instance", "group"]


def normaliser(norm: Norm, channels: int) -> nn.Module:
    """One with a learnt scale and shift; 32 groups, as in arXiv:1803.08494, where they fit."""
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "instance":
        return InstanceNorm(channels)
    if norm == "group":
        groups = math.gcd(32, channels)
        # one channel a group would be instance norm
        return nn.GroupNorm(groups if groups < channels else max(1, channels // 2), channels)
    raise InputError(f"expected norm 'batch', 'instance' or 'group', got {norm!r}")


class InstanceNorm(nn.GroupNorm):
    """Groups of one channel: torch's own instance norm fails on an empty batch."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels)

    def forward(self, x: Images) -> Images:
        if x.shape[2] * x.shape[3] == 1:
            raise InputError(
                "expected maps of several pixels for instance norm, got 1x1, of which nothing "
                "would be left: give larger images or choose another norm"
            )
        return super().forward(x)
