"""Densely connected networks with bottlenecks and compression."""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, relu

from rood.models.backbones.base import Backbone
from rood.shapes import Images, Logits


class DenseNet(Backbone):
    """A stem, dense blocks with transitions that halve channels and map, a mean, a head.

    Huang et al., *Densely Connected Convolutional Networks*, CVPR 2017, arXiv:1608.06993.
    """

    def __init__(
        self,
        first: nn.Module,  # its stem
        width: int,  # channels after the stem
        depths: Sequence[int],  # layers in each dense block
        *,
        classes: int,
        channels: int,
        growth: int,  # channels each layer adds
    ) -> None:
        super().__init__(classes=classes, channels=channels)
        self.stem = first
        body: OrderedDict[str, nn.Module] = OrderedDict()
        for block, depth in enumerate(depths, start=1):
            if block > 1:
                body[f"transition{block - 1}"] = _Transition(width, width // 2)
                width //= 2
            layers = [_Layer(width + i * growth, growth) for i in range(depth)]
            body[f"block{block}"] = nn.Sequential(*layers)
            width += depth * growth
        self.body = nn.Sequential(body)
        self.norm = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Images) -> Logits:
        maps = self.relu(self.norm(self.body(self.stem(x))))
        return self.head(self.pool(maps).flatten(1))

    @property
    def lee_layers(self) -> tuple[str, ...]:
        """Stem, transitions and the last map, as Lee et al., arXiv:1807.03888."""
        transitions = (n for n, m in self.body.named_children() if isinstance(m, _Transition))
        return ("stem", *(f"body.{n}" for n in transitions), "relu")


class _Layer(nn.Module):
    """x concatenated with `growth` new channels, by way of a bottleneck of 4 growth channels."""

    def __init__(self, before: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(before)
        self.conv1 = nn.Conv2d(before, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Images) -> Float[Tensor, "b c2 h w"]:
        narrow = self.conv1(relu(self.norm1(x)))
        return torch.cat([x, self.conv2(relu(self.norm2(narrow)))], dim=1)


class _Transition(nn.Module):
    """A 1x1 convolution to fewer channels and 2x2 average pooling."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(before)
        self.conv1 = nn.Conv2d(before, after, 1, bias=False)

    def forward(self, x: Images) -> Float[Tensor, "b c2 h2 w2"]:
        return avg_pool2d(self.conv1(relu(self.norm1(x))), 2)
