"""Where a network begins: with small images or with large ones."""

from typing import Literal

from torch import nn

from rood.errors import InputError

Stem = Literal["small", "large"]


def stem_of(stem: Stem, channels: int, width: int) -> tuple[nn.Conv2d, nn.Module]:
    """A first convolution and the pooling behind it.

    small: 3x3, and nothing, for 32x32; large: 7x7 with stride 2, and a maximum, for 224x224.
    """
    if stem == "small":
        return nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.Identity()
    if stem == "large":
        first = nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
        return first, nn.MaxPool2d(3, stride=2, padding=1)
    raise InputError(f"expected stem 'small' or 'large', got {stem!r}")
