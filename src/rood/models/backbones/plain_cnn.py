"""A small convolutional network without normalisation, for certificates."""

import math

from torch import Generator, nn

from rood.models.backbones.base import Backbone
from rood.shapes import Images, Logits


class PlainCNN(Backbone):
    """Two 4x4 convolutions that halve the image, one over the whole map that is left, a head.

    In the manner of the small network of Gowal et al., *On the Effectiveness of Interval Bound
    Propagation for Training Verifiably Robust Models*, arXiv:1810.12715: few layers, as bounds
    widen with each, and no normalisation, whose statistics no bound covers in training. Weights
    start so that a box keeps its width from layer to layer, Shi et al., *Fast Certified Robust
    Training with Short Warmup*, NeurIPS 2021, arXiv:2103.17268: E|w| = 2 / fan-in. `side` is that
    of the map, a quarter of the image's; `depth` adds 3x3 convolutions on it.
    """

    def __init__(
        self,
        *,
        classes: int = 10,
        channels: int = 3,
        width: int = 16,
        features: int = 100,
        side: int = 7,
        depth: int = 0,
    ) -> None:
        super().__init__(classes=classes, channels=channels)
        deeper = [
            layer
            for _ in range(depth)
            for layer in (nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU())
        ]
        self.layers = nn.Sequential(
            *(nn.Conv2d(channels, width, 4, stride=2, padding=1), nn.ReLU()),
            *(nn.Conv2d(width, 2 * width, 4, stride=2, padding=1), nn.ReLU()),
            nn.AdaptiveAvgPool2d(side),  # changes nothing for 28x28 and side 7
            *deeper,
            *(nn.Conv2d(2 * width, features, side), nn.ReLU(), nn.Flatten()),
        )
        self.head = nn.Linear(features, classes)

    def forward(self, x: Images) -> Logits:
        return self.head(self.layers(x))

    def start(self, layer: nn.Module, generator: Generator) -> bool:
        known = super().start(layer, generator)
        if isinstance(layer, nn.Conv2d | nn.Linear):
            fan_in = layer.weight[0].numel()
            layer.weight.normal_(std=math.sqrt(2 * math.pi) / fan_in, generator=generator)
        return known
