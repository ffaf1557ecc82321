"""The first layers of a network, for small or large images."""

from typing import Literal

from torch import nn

from rood.errors import InputError

Stem = Literal["small", "large"]


def stem_of(stem: Stem, channels: int, width: int) -> tuple[nn.Conv2d, nn.Module]:
    """The first convolution and the pooling after it.

    small: 3x3 without pooling, for 32x32; large: 7x7 with stride 2 and max pooling, for 224x224.
    """
    if stem == "small":
        return nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.Identity()
    if stem == "large":
        first = nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
        return first, nn.MaxPool2d(3, stride=2, padding=1)
    raise InputError(f"expected stem 'small' or 'large', got {stem!r}")
