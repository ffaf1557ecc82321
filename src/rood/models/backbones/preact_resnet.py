"""Pre-activation residual networks with a smooth activation, for 32x32 images."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import silu

from rood.errors import expect
from rood.models.backbones._norm import Norm, normaliser
from rood.models.backbones.base import Backbone
from rood.shapes import Images, Logits


class PreActResNet(Backbone):
    """Stages of pre-activation blocks with SiLU; each but the first halves the map.

    Channels double from stage to stage; two blocks in each of four make a ResNet-18.

    He et al., *Identity Mappings in Deep Residual Networks*, ECCV 2016, arXiv:1603.05027. Smooth
    activations help robust training: Xie et al., *Smooth Adversarial Training*, arXiv:2006.14536.
    """

    def __init__(
        self,
        *,
        classes: int = 10,
        channels: int = 3,
        width: int = 64,
        depths: list[int] | tuple[int, ...] = (2, 2, 2, 2),  # blocks in each stage
        norm: Norm = "batch",
    ) -> None:
        super().__init__(classes=classes, channels=channels)
        expect(min(depths, default=0) > 0, "at least one block in each stage", list(depths))
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        blocks, before = [], width
        for stage, depth in enumerate(depths):
            after = width * 2**stage
            for i in range(depth):
                blocks.append(_Block(before, after, 2 if stage and not i else 1, norm))
                before = after
        self.blocks = nn.Sequential(*blocks)
        self.norm = normaliser(norm, before)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(before, classes)

    def forward(self, x: Images) -> Logits:
        maps = silu(self.norm(self.blocks(self.stem(x))))
        return self.head(self.pool(maps).flatten(1))


class _Block(nn.Module):
    """x + f(a), a = silu(norm(x)); where the shape changes, a 1x1 convolution of a replaces x."""

    def __init__(self, before: int, after: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.norm1 = normaliser(norm, before)
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.norm2 = normaliser(norm, after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.project = None
        if before != after:
            self.project = nn.Conv2d(before, after, 1, stride=stride, bias=False)

    def forward(self, x: Images) -> Float[Tensor, "b c2 h2 w2"]:
        a = silu(self.norm1(x))
        f: Tensor = self.conv2(silu(self.norm2(self.conv1(a))))
        return f + (x if self.project is None else self.project(a))
