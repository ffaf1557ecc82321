"""ResNet-18, for 32x32 images unless its stem is large."""

from rood.models.backbones._norm import Norm
from rood.models.backbones._resnet import ResNet
from rood.models.backbones._stem import Stem


class ResNet18(ResNet):
    """Eight residual blocks in four stages, 64 to 512 channels.

    He et al., *Deep Residual Learning for Image Recognition*, CVPR 2016, arXiv:1512.03385.
    """

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
            (2, 2, 2, 2), classes=classes, channels=channels, width=width, norm=norm, stem=stem
        )
