"""A small convolutional network without normalisation, for certificates."""

from torch import nn

from rood.models.backbones.base import Backbone
from rood.shapes import Images, Logits


class PlainCNN(Backbone):
    """Two 4x4 convolutions that halve the image, one over the 7x7 map that is left, a head.

    In the manner of the small network of Gowal et al., *On the Effectiveness of Interval Bound
    Propagation for Training Verifiably Robust Models*, arXiv:1810.12715: few layers, as bounds
    widen with each, and no normalisation, whose statistics no bound covers in training.
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
