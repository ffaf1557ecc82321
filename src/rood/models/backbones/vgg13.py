"""VGG13 for 32x32 images."""

from itertools import pairwise

from torch import nn

from rood.models.backbones.base import Backbone
from rood.shapes import Images, Logits


class VGG13(Backbone):
    """Five pairs of 3x3 convolutions, each pooled by its maximum; two hidden layers; a head.

    Simonyan and Zisserman, *Very Deep Convolutional Networks for Large-Scale Image Recognition*,
    ICLR 2015, arXiv:1409.1556, without normalisation and with 512 units per hidden layer, as Lee et
    al., *Training Confidence-Calibrated Classifiers*, ICLR 2018, arXiv:1711.09325. The vector that
    enters the hidden layers is the output of `flat`.
    """

    def __init__(self, *, classes: int = 10, channels: int = 3, width: int = 64) -> None:
        super().__init__(classes=classes, channels=channels)
        sizes = [channels, *(width * k for k in (1, 2, 4, 8, 8))]
        self.layers = nn.Sequential(*(m for pair in pairwise(sizes) for m in _pair(*pair)))
        self.pool = nn.AdaptiveAvgPool2d(1)  # changes nothing for 28x28 and 32x32
        self.flat = nn.Flatten()
        units = sizes[-1]
        hidden = (nn.Dropout(), nn.Linear(units, units), nn.ReLU())
        again = (nn.Dropout(), nn.Linear(units, units), nn.ReLU())
        self.hidden = nn.Sequential(*hidden, *again)
        self.head = nn.Linear(units, classes)

    def forward(self, x: Images) -> Logits:
        return self.head(self.hidden(self.flat(self.pool(self.layers(x)))))


def _pair(before: int, after: int) -> list[nn.Module]:
    first, second = (nn.Conv2d(c, after, 3, padding=1) for c in (before, after))
    # rounded up: 28x28 would shrink to nothing
    return [first, nn.ReLU(), second, nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)]
