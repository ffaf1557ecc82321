"""A small convolutional network for digits and traffic signs."""

from torch import nn

from rood.models.backbones.base import Backbone
from rood.shapes import Images, Logits


class SmallCNN(Backbone):
    """Four 3x3 convolutions, two of them halving the image, each with batch norm; mean over pixels.

    In the manner of Springenberg et al., *Striving for Simplicity: The All Convolutional Net*,
    arXiv:1412.6806: strides instead of max pooling, so that gradients reach every pixel.
    """

    def __init__(self, *, classes: int = 10, channels: int = 3, width: int = 32) -> None:
        super().__init__(classes=classes, channels=channels)
        self.width = width
        w = width
        self.layers = nn.Sequential(
            *_block(channels, w, stride=2),
            *_block(w, 2 * w, stride=2),
            *_block(2 * w, 4 * w, stride=2),
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(4 * w, classes)

    def forward(self, x: Images) -> Logits:
        return self.head(self.pool(self.layers(x)).flatten(1))


def _block(before: int, after: int, stride: int) -> list[nn.Module]:
    conv = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
    return [conv, nn.BatchNorm2d(after), nn.ReLU()]
