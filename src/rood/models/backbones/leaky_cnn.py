"""A convolutional network without normalisation, for energy-based models."""

from torch import nn

from rood.models.backbones.base import Backbone
from rood.shapes import Images, Logits


class LeakyCNN(Backbone):
    """A 3x3 convolution, three 4x4 ones that halve the image, one over the 3x3 map left, a head.

    For `jem`, as Grathwohl et al., *Your Classifier is Secretly an Energy Based Model*, ICLR 2020,
    arXiv:1912.03263, recommend: no normalisation, so that the energy of an image depends on no
    other, and leaky ReLUs. Kernel sizes are multiples of the stride, to avoid grid artefacts.
    """

    def __init__(
        self, *, classes: int = 10, channels: int = 3, width: int = 32, features: int = 128
    ) -> None:
        super().__init__(classes=classes, channels=channels)
        sizes = [width * 2**i for i in range(4)]
        self.layers = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1),
            nn.LeakyReLU(0.2),
            *(m for i in range(3) for m in _halving(sizes[i], sizes[i + 1])),
            nn.AdaptiveAvgPool2d(3),  # changes nothing for 28x28
            nn.Conv2d(sizes[-1], features, 3),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
        )
        self.head = nn.Linear(features, classes)

    def forward(self, x: Images) -> Logits:
        return self.head(self.layers(x))


def _halving(before: int, after: int) -> list[nn.Module]:
    return [nn.Conv2d(before, after, 4, stride=2, padding=1), nn.LeakyReLU(0.2)]
