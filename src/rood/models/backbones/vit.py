"""Vision transformers."""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn.functional import gelu, interpolate

from rood.errors import InputError, expect
from rood.models.backbones.base import Backbone
from rood.shapes import Images, Logits


class ViT(Backbone):
    """Patches and a class token through pre-norm attention blocks; the token's last norm, a head.

    Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021, arXiv:2010.11929. As wide
    and deep as DeiT-Ti, arXiv:2012.12877, by default; ViT-B/16 is size=224, patch=16, width=768,
    heads=12. Positions are interpolated for other image sizes. Tokens have the form of a map one
    row high, the class token first, so that layered detectors can read and change it.
    """

    def __init__(
        self,
        *,
        classes: int = 10,
        channels: int = 3,
        size: int = 32,  # side of the images whose positions are learnt, in pixels
        patch: int = 4,  # side of a patch, in pixels
        width: int = 192,
        depth: int = 12,
        heads: int = 3,
    ) -> None:
        super().__init__(classes=classes, channels=channels)
        fits = size % patch == 0 and width % heads == 0
        given = f"size {size}, patch {patch}, width {width}, heads {heads}"
        expect(fits, "size = n patch and width = m heads", given)
        self.patch, self.side = patch, size // patch
        self.embed = nn.Conv2d(channels, width, patch, stride=patch)
        self.token = nn.Parameter(torch.empty(1, width, 1))
        self.positions = nn.Parameter(torch.empty(1, width, 1 + self.side**2))
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Images) -> Logits:
        if x.shape[2] % self.patch or x.shape[3] % self.patch:
            h, w = x.shape[2:]
            raise InputError(f"expected sides divisible by {self.patch}, got {h}x{w} pixels")
        patches = self.embed(x)  # (b, d, h, w)
        token = self.token.expand(len(x), -1, -1)
        tokens = torch.cat([token, patches.flatten(2)], dim=2)  # (b, d, n)
        tokens = tokens + self._positions(patches.shape[2], patches.shape[3])
        return self.head(self.norm(self.blocks(tokens[:, :, None])[:, :, 0, 0]))

    def start(self, layer: nn.Module, generator: Generator) -> bool:
        if layer is self:
            for own in (self.token, self.positions):
                own.normal_(0, 0.02, generator=generator)
        elif isinstance(layer, nn.LayerNorm):
            layer.reset_parameters()
        else:
            return super().start(layer, generator)
        return True

    def _positions(self, h: int, w: int) -> Float[Tensor, "1 d n"]:
        if (h, w) == (self.side, self.side):
            return self.positions
        first, others = self.positions[:, :, :1], self.positions[:, :, 1:]
        square = others.unflatten(2, (self.side, self.side))
        return torch.cat([first, interpolate(square, (h, w), mode="bicubic").flatten(2)], dim=2)


class _Block(nn.Module):
    """t + attention(norm(t)), then t + f(norm(t)) with f two layers, four times as wide inside."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attention = _Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, maps: Float[Tensor, "b d 1 n"]) -> Float[Tensor, "b d 1 n"]:
        t = maps[:, :, 0].transpose(1, 2)  # (b, n, d)
        t = t + self.attention(self.norm1(t))
        t = t + self.narrow(gelu(self.wide(self.norm2(t))))
        return t.transpose(1, 2)[:, :, None]


class _Attention(nn.Module):
    """softmax(q k' / sqrt(d)) v, in each of several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, t: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        parts = self.qkv(t).unflatten(2, (3, self.heads, -1))
        q, k, v = parts.permute(2, 0, 3, 1, 4)  # each (b, heads, n, d / heads)
        # not torch's fused kernel, which has no second derivative
        weights = (q @ k.transpose(2, 3) / math.sqrt(q.shape[3])).softmax(dim=3)
        return self.out((weights @ v).transpose(1, 2).flatten(2))
