"""A small convolutional network without normalisation, for certificates."""

import math

from torch import Generator, nn

from rood.models.backbones.base import Backbone
from rood.shapes import Images, Logits


class PlainCNN(Backbone):
    """Two 4x4 convolutions that halve the image, one over the 7x7 map that is left, a head.

    In the manner of the small network of Gowal et al., *On the Effectiveness of Interval Bound
    Propagation for Training Verifiably Robust Models*, arXiv:1810.12715: few layers, as bounds
    widen with each, and no normalisation, whose statistics no bound covers in training. Weights
    start so that a box keeps its width from layer to layer, Shi et al., *Fast Certified Robust
    Training with Short Warmup*, NeurIPS 2021, arXiv:2103.17268: E|w| = 2 / fan-in.
    """

    def __init__(
        self, *, classes: int = 10, channels: int = 3, width: int = 16, features: int = 100
    ) -> None:
        super().__init__(classes=classes, channels=channels)
        self.layers = nn.Sequential(
            *(nn.Conv2d(channels, width, 4, stride=2, padding=1), nn.ReLU()),
            *(nn.Conv2d(width, 2 * width, 4, stride=2, padding=1), nn.ReLU()),
            nn.AdaptiveAvgPool2d(7),  # changes nothing for 28x28
            *(nn.Conv2d(2 * width, features, 7), nn.ReLU(), nn.Flatten()),
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
