"""Wide residual networks for 32x32 images."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import dropout, relu

from rood.errors import InputError
from rood.models.backbones._norm import Norm, normaliser
from rood.models.backbones.base import Backbone
from rood.shapes import Images, Logits


class WideResNet(Backbone):
    """WRN-d-k: three stages of (d - 4) / 6 pre-activation blocks, 16k, 32k and 64k channels.

    Zagoruyko and Komodakis, *Wide Residual Networks*, BMVC 2016, arXiv:1605.07146.
    """

    def __init__(
        self,
        *,
        classes: int = 10,
        channels: int = 3,
        depth: int = 40,
        widen: int = 2,
        drop: float = 0.0,  # share of activations dropped between the convolutions of a block
        norm: Norm = "batch",
    ) -> None:
        super().__init__(classes=classes, channels=channels)
        if depth < 10 or (depth - 4) % 6 or widen < 1:
            raise InputError(f"expected depth = 6 n + 4 and widen >= 1, got {depth} and {widen}")
        self.stem = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        blocks, before = [], 16
        for stage in range(3):
            after = 16 * widen * 2**stage
            for i in range((depth - 4) // 6):
                stride = 2 if stage > 0 and i == 0 else 1
                blocks.append(_Block(before, after, stride, drop, norm))
                before = after
        self.blocks = nn.Sequential(*blocks)
        self.norm = normaliser(norm, before)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(before, classes)

    def forward(self, x: Images) -> Logits:
        maps = relu(self.norm(self.blocks(self.stem(x))))
        return self.head(self.pool(maps).flatten(1))


class _Block(nn.Module):
    """x + f(a), a = relu(norm(x)); where the shape changes, a 1x1 convolution of a replaces x."""

    def __init__(self, before: int, after: int, stride: int, drop: float, norm: Norm) -> None:
        super().__init__()
        self.drop = drop
        self.norm1 = normaliser(norm, before)
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.norm2 = normaliser(norm, after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.project = None
        if before != after:
            self.project = nn.Conv2d(before, after, 1, stride=stride, bias=False)

    def forward(self, x: Images) -> Float[Tensor, "b c2 h2 w2"]:
        a = relu(self.norm1(x))
        f: Tensor = relu(self.norm2(self.conv1(a)))
        if self.drop:
            f = dropout(f, self.drop, self.training)
        return self.conv2(f) + (x if self.project is None else self.project(a))
