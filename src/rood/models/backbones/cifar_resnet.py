"""The residual networks made for CIFAR: ResNet-20, -32, -44, -56 and -110."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from rood.errors import expect
from rood.models.backbones._norm import Norm
from rood.models.backbones._resnet import ResNet
from rood.shapes import Images


class CifarResNet(ResNet):
    """Three stages of (depth - 2) / 6 residual blocks, 16 to 64 channels; plain shortcuts.

    He et al., *Deep Residual Learning for Image Recognition*, CVPR 2016, arXiv:1512.03385, with
    its option A: a shortcut that skips every other pixel and fills new channels with zeros.
    """

    def __init__(
        self,
        *,
        classes: int = 10,
        channels: int = 3,
        depth: int = 20,
        width: int = 16,
        norm: Norm = "batch",
    ) -> None:
        expect(depth >= 8 and (depth - 2) % 6 == 0, "depth = 6 n + 2", depth)
        super().__init__(
            [(depth - 2) // 6] * 3,
            classes=classes,
            channels=channels,
            width=width,
            norm=norm,
            shortcut=lambda before, after, _: _Padded(after - before),
        )


class _Padded(nn.Module):
    """Every other pixel, with half of the new channels before and half behind the old ones."""

    def __init__(self, more: int) -> None:
        super().__init__()
        self.more = more

    def forward(self, x: Images) -> Float[Tensor, "b c2 h2 w2"]:
        front = self.more // 2
        return pad(x[:, :, ::2, ::2], (0, 0, 0, 0, front, self.more - front))
