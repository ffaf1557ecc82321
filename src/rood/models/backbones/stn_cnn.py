"""A traffic-sign network with a spatial transformer."""

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn.functional import relu

from rood.models.backbones.base import Backbone
from rood.shapes import Images, Logits


class STNCNN(Backbone):
    """A spatial transformer, three pooled convolutions, a layer of 128 features, a head.

    Jaderberg et al., *Spatial Transformer Networks*, NeurIPS 2015, arXiv:1506.02025; the sizes are
    ours. For signs of 32x32 or so: memory grows with the cube of an image's side.
    """

    def __init__(
        self, *, classes: int = 43, channels: int = 3, width: int = 64, features: int = 128
    ) -> None:
        super().__init__(classes=classes, channels=channels)
        self.transformer = _Transformer(channels)
        self.layers = nn.Sequential(
            *_block(channels, width),
            *_block(width, 2 * width),
            *_block(2 * width, 4 * width),
            nn.AdaptiveAvgPool2d(4),  # changes nothing for 32x32
            nn.Flatten(),
            nn.Linear(4 * 4 * 4 * width, features),
            nn.ReLU(),
        )
        self.head = nn.Linear(features, classes)

    def forward(self, x: Images) -> Logits:
        return self.head(self.layers(self.transformer(x)))

    def start(self, layer: nn.Module, generator: Generator) -> bool:
        known = super().start(layer, generator)
        if layer is self.transformer.theta:
            # near the identity: at the identity every sample lies on a kink and the gradient is 0
            self.transformer.theta.weight.mul_(0.01)
            self.transformer.theta.bias.copy_(torch.tensor([1.0, 0, 0, 0, 1, 0]))
        return known


class _Transformer(nn.Module):
    """The image resampled by an affine map that a small network predicts."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.look = nn.Sequential(
            nn.Conv2d(channels, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 64),
            nn.ReLU(),
        )
        self.theta = nn.Linear(64, 6)

    def forward(self, x: Images) -> Images:
        return transformed(x, self.theta(self.look(x)).view(-1, 2, 3).to(x.dtype))


def transformed(x: Images, theta: Float[Tensor, "b 2 3"]) -> Images:
    """v_p = sum_ij x_ij max(0, 1 - |across_p - j|) max(0, 1 - |down_p - i|), black outside.

    p runs over the pixels; its place is theta (across, down, 1), where an image reaches from -1 to
    1. Written out: torch's own sampler has no second derivative and is not repeatable on CUDA.
    """
    h, w = x.shape[2:]
    rows, columns = (torch.arange(n, device=x.device, dtype=x.dtype) for n in (h, w))
    v, u = torch.meshgrid((2 * rows + 1) / h - 1, (2 * columns + 1) / w - 1, indexing="ij")
    u, v = u.flatten(), v.flatten()  # (p,)
    across, down = (t[:, :1] * u + t[:, 1:2] * v + t[:, 2:] for t in theta.unbind(1))  # (b, p)
    near_column = relu(1 - (((across + 1) * w - 1) / 2)[:, :, None].sub(columns).abs())  # (b, p, w)
    near_row = relu(1 - (((down + 1) * h - 1) / 2)[:, :, None].sub(rows).abs())  # (b, p, h)
    beside = torch.einsum("bchw, bpw -> bchp", x, near_column)
    return torch.einsum("bchp, bph -> bcp", beside, near_row).unflatten(2, (h, w))


def _block(before: int, after: int) -> list[nn.Module]:
    conv = nn.Conv2d(before, after, 3, padding=1, bias=False)
    return [conv, nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)]
