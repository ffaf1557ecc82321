"""DenseNet-121, for 32x32 images unless its stem is large."""

from torch import nn

from rood.models.backbones._densenet import DenseNet
from rood.models.backbones._stem import Stem, stem_of


class DenseNet121(DenseNet):
    """Dense blocks of 6, 12, 24 and 16 layers that add 32 channels each; 1024 features.

    Huang et al., *Densely Connected Convolutional Networks*, CVPR 2017, arXiv:1608.06993. The
    paper's own stem is the large one.
    """

    def __init__(
        self, *, classes: int = 10, channels: int = 3, growth: int = 32, stem: Stem = "small"
    ) -> None:
        width = 2 * growth
        start: nn.Module
        start, pool = stem_of(stem, channels, width)
        if stem == "large":
            # normalise before max pooling; after a small stem the first layer does
            start = nn.Sequential(start, nn.BatchNorm2d(width), nn.ReLU(), pool)
        depths = (6, 12, 24, 16)
        super().__init__(start, width, depths, classes=classes, channels=channels, growth=growth)
