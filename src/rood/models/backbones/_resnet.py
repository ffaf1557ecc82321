"""Residual networks in the order convolution, normalisation, ReLU."""

import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import relu

from rood.models.backbones._norm import Norm, normaliser
from rood.models.backbones._stem import Stem, stem_of
from rood.models.backbones.base import Backbone
from rood.shapes import Images, Logits

Shortcut = Callable[[int, int, Norm], nn.Module]  # channels before and after; halves the map


def projection(before: int, after: int, norm: Norm) -> nn.Module:
    """A 1x1 convolution, the paper's option B."""
    project = nn.Conv2d(before, after, 1, stride=2, bias=False)
    return nn.Sequential(project, normaliser(norm, after))


class ResNet(Backbone):
    """A stem, stages of residual blocks, a mean, a head; each stage but the first halves the map.

    He et al., *Deep Residual Learning for Image Recognition*, CVPR 2016, arXiv:1512.03385.
    """

    def __init__(
        self,
        depths: Sequence[int],  # blocks in each stage
        *,
        classes: int,
        channels: int,
        width: int,  # channels of the first stage; they double from stage to stage
        norm: Norm,
        stem: Stem = "small",
        shortcut: Shortcut = projection,
    ) -> None:
        super().__init__(classes=classes, channels=channels)
        self.stem, pool = stem_of(stem, channels, width)
        self.norm = normaliser(norm, width)
        self.shrink = pool
        blocks, before = [], width
        for stage, depth in enumerate(depths):
            after = width * 2**stage
            for i in range(depth):
                short = shortcut(before, after, norm) if stage and not i else nn.Identity()
                blocks.append(_Block(before, after, norm, short))
                before = after
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(before, classes)
        self._ends = list(accumulate(depths))

    def forward(self, x: Images) -> Logits:
        maps = self.blocks(self.shrink(relu(self.norm(self.stem(x)))))
        return self.head(self.pool(maps).flatten(1))

    @property
    def lee_layers(self) -> tuple[str, ...]:
        """The stem behind its ReLU and the end of every stage, as Lee et al., arXiv:1807.03888."""
        # the first block's shortcut is the identity of the stem
        return ("blocks.0.shortcut", *(f"blocks.{end - 1}" for end in self._ends))

    def our_name(self, name: str) -> str:
        layer, _, tensor = name.rpartition(".")
        starts = dict(enumerate([0, *self._ends[:-1]], start=1))
        found = re.fullmatch(r"layer(\d+)\.(\d+)\.(.+)", layer)
        if found is None or int(found[1]) not in starts:
            return f"{_OUTER[layer]}.{tensor}" if layer in _OUTER else name
        inner = found[3].replace("bn", "norm").replace("downsample", "shortcut")
        return f"blocks.{starts[int(found[1])] + int(found[2])}.{inner}.{tensor}"


class FourStages(ResNet):
    """The ResNets for ImageNet, which differ in the number of blocks per stage."""

    depths: ClassVar[tuple[int, int, int, int]]

    def __init__(
        self,
        *,
        classes: int = 10,
        channels: int = 3,
        width: int = 64,
        norm: Norm = "batch",
        stem: Stem = "small",
    ) -> None:
        super().__init__(
            self.depths, classes=classes, channels=channels, width=width, norm=norm, stem=stem
        )


_OUTER = {"conv1": "stem", "bn1": "norm", "fc": "head", "linear": "head"}


class _Block(nn.Module):
    """relu(shortcut(x) + f(x)), with f two convolutions, the first of which may halve the map."""

    def __init__(self, before: int, after: int, norm: Norm, shortcut: nn.Module) -> None:
        super().__init__()
        stride = 1 if isinstance(shortcut, nn.Identity) else 2
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.norm1 = normaliser(norm, after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = normaliser(norm, after)
        self.shortcut = shortcut

    def forward(self, x: Images) -> Float[Tensor, "b c2 h2 w2"]:
        f = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)))))
        return relu(f + self.shortcut(x))
