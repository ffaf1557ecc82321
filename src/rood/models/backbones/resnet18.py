"""ResNet-18, for 32x32 images unless its stem is large."""

from rood.models.backbones._resnet import FourStages


class ResNet18(FourStages):
    """Eight residual blocks in four stages, 64 to 512 channels.

    He et al., *Deep Residual Learning for Image Recognition*, CVPR 2016, arXiv:1512.03385.
    """

    depths = (2, 2, 2, 2)
