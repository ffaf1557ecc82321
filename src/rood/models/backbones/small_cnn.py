"""A small convolutional network for digits and traffic signs."""

from torch import nn

from rood.models.backbones.base import Backbone
from rood.shapes import Images, Logits


class SmallCNN(Backbone):
    """Three 3x3 convolutions that halve the image, one over the 4x4 map that is left, a head.

    In the manner of Springenberg et al., *Striving for Simplicity: The All Convolutional Net*,
    arXiv:1412.6806: strides instead of max pooling, so that gradients reach every pixel. The last
    convolution keeps positions; with global pooling the network accepts textures as digits.
    """

    def __init__(
        self, *, classes: int = 10, channels: int = 3, width: int = 24, features: int = 64
    ) -> None:
        super().__init__(classes=classes, channels=channels)
        self.layers = nn.Sequential(
            *_block(channels, width),
            *_block(width, 2 * width),
            *_block(2 * width, 4 * width),
            nn.AdaptiveAvgPool2d(4),  # changes nothing for 28x28 and 32x32
            nn.Conv2d(4 * width, features, 4, bias=False),
            nn.BatchNorm2d(features),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.head = nn.Linear(features, classes)

    def forward(self, x: Images) -> Logits:
        return self.head(self.layers(x))


def _block(before: int, after: int) -> list[nn.Module]:
    conv = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
    return [conv, nn.BatchNorm2d(after), nn.ReLU()]
