"""ResNet-18 for 32x32 images."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import relu

from rood.models.backbones.base import Backbone
from rood.shapes import Images, Logits


class ResNet18(Backbone):
    """Four stages of two residual blocks, 64 to 512 channels, with a 3x3 stem that keeps 32x32.

    He et al., *Deep Residual Learning for Image Recognition*, CVPR 2016, arXiv:1512.03385.
    """

    def __init__(self, *, classes: int = 10, channels: int = 3, width: int = 64) -> None:
        super().__init__(classes=classes, channels=channels)
        self.width = width
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        blocks = []
        before = width
        for stage in range(4):
            after = width * 2**stage
            blocks += [_Block(before, after, stride=1 + (stage > 0)), _Block(after, after, 1)]
            before = after
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(before, classes)

    def forward(self, x: Images) -> Logits:
        maps = self.blocks(relu(self.norm(self.stem(x))))
        return self.head(self.pool(maps).flatten(1))


class _Block(nn.Module):
    """relu(x + f(x)), with f two convolutions; a 1x1 convolution of x where the shape changes."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            project = nn.Conv2d(before, after, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(project, nn.BatchNorm2d(after))

    def forward(self, x: Images) -> Float[Tensor, "b c2 h2 w2"]:
        f = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)))))
        return relu(f + self.shortcut(x))
