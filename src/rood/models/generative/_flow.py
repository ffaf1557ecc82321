"""The invertible steps that a flow is made of, each with the logarithm of its determinant.

Every `forward` gives the maps and log |det J|: one number an image, or one for all alike. Maps are
float64, whatever the weights are: where a flow shrinks, the way back enlarges rounding errors. Out
of training the networks inside compute in float64 as well. In float32 they would round their input,
and a map that comes back off by 1e-13 is now and then rounded the other way: a step of 1e-7 in what
they steer, 1e-4 in a pixel.
"""

from abc import ABC, abstractmethod
from typing import Literal, TypeAlias, get_args

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from rood.errors import InputError

Maps: TypeAlias = Float[Tensor, "b c h w"]
LogDet: TypeAlias = Float[Tensor, ""] | Float[Tensor, " b"]
CouplingKind = Literal["affine", "additive"]

LEAST_STD = 1e-6  # of a channel that never changes
OPEN = 2.0  # added before the sigmoid, so that a new coupling hardly scales
FLOOR = 3.0  # a coupling shrinks by at most e^3: what it shrinks, the way back enlarges


def squeezed(x: Maps) -> Float[Tensor, "b c4 h2 w2"]:
    """Each square of 2x2 places as one place with four times the channels."""
    b, c, h, w = x.shape
    return (
        x.view(b, c, h // 2, 2, w // 2, 2)
        .permute(0, 1, 3, 5, 2, 4)
        .reshape(b, 4 * c, h // 2, w // 2)
    )


def spread(x: Maps) -> Float[Tensor, "b c1 h1 w1"]:
    """What `squeezed` undoes."""
    b, c, h, w = x.shape
    return x.view(b, c // 4, 2, 2, h, w).permute(0, 1, 4, 2, 5, 3).reshape(b, c // 4, 2 * h, 2 * w)


class Drawn(nn.Module, ABC):
    """A layer that knows its own first values."""

    @abstractmethod
    def start(self, generator: Generator) -> None:
        """Set every weight and buffer it holds itself."""


class ActNorm(Drawn):
    """y = (x + bias) exp(log_scale), for each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(channels))
        self.log_scale = nn.Parameter(torch.empty(channels))

    def start(self, generator: Generator) -> None:
        self.bias.zero_()
        self.log_scale.zero_()

    @torch.no_grad()
    def settle(self, x: Maps) -> None:
        """Give these maps mean 0 and standard deviation 1."""
        self.bias.copy_(-x.mean(dim=(0, 2, 3)))
        self.log_scale.copy_(-x.std(dim=(0, 2, 3)).clamp_min(LEAST_STD).log())

    def forward(self, x: Maps) -> tuple[Maps, LogDet]:
        y = (x + self.bias.view(-1, 1, 1)) * self._scale()
        return y, self.log_scale.double().sum() * (x.shape[2] * x.shape[3])

    def inverse(self, y: Maps) -> Maps:
        return y / self._scale() - self.bias.view(-1, 1, 1)

    def _scale(self) -> Float[Tensor, "c 1 1"]:
        return self.log_scale.double().exp().view(-1, 1, 1)


class Mix(Drawn):
    """y = W x in every place, W = P L (U + diag(sign exp(log_size))): a 1x1 convolution.

    P is a permutation that stays; L and U are triangular, with ones and zeros on their diagonals.
    """

    permutation: Tensor
    sign: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lower = nn.Parameter(torch.empty(channels, channels))
        self.upper = nn.Parameter(torch.empty(channels, channels))
        self.log_size = nn.Parameter(torch.empty(channels))
        self.register_buffer("permutation", torch.empty(channels, channels))
        self.register_buffer("sign", torch.empty(channels))

    def start(self, generator: Generator) -> None:
        turned, _ = torch.linalg.qr(torch.randn(self.lower.shape, generator=generator).double())
        p, lower, upper = torch.linalg.lu(turned)
        self.permutation.copy_(p)
        self.lower.copy_(lower.tril(-1))
        self.upper.copy_(upper.triu(1))
        self.sign.copy_(upper.diagonal().sign())
        self.log_size.copy_(upper.diagonal().abs().log())

    def forward(self, x: Maps) -> tuple[Maps, LogDet]:
        lower, upper = self._triangles()
        w = self.permutation.double() @ lower @ upper
        y = (w @ x.flatten(2)).view(x.shape)
        return y, self.log_size.double().sum() * (x.shape[2] * x.shape[3])

    def inverse(self, y: Maps) -> Maps:
        lower, upper = self._triangles()
        half = self.permutation.double().T @ y.flatten(2)
        half = torch.linalg.solve_triangular(lower, half, upper=False, unitriangular=True)
        return torch.linalg.solve_triangular(upper, half, upper=True).view(y.shape)

    def _triangles(self) -> tuple[Float[Tensor, "c c"], Float[Tensor, "c c"]]:
        size = self.sign * self.log_size.double().exp()
        one = torch.ones_like(size).diag()
        return self.lower.tril(-1) + one, self.upper.triu(1) + size.diag()


class Conv(nn.Conv2d):
    """A convolution in float64 but for training, which never goes back.

    An exported or compiled program has float32 too: no runtime convolves float64.
    """

    def forward(self, x: Maps) -> Float[Tensor, "b d h w"]:
        quick = self.training or torch.compiler.is_compiling()
        like = self.weight if quick else x.double()
        bias = None if self.bias is None else self.bias.to(like)
        return self._conv_forward(x.to(like), self.weight.to(like), bias)


class ZeroConv(Conv, Drawn):
    """A 3x3 convolution that gives 0 at first, so that what it steers starts as the identity."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(before, after, 3, padding=1)

    def start(self, generator: Generator) -> None:
        for parameter in self.parameters():
            parameter.zero_()


class Coupling(nn.Module):
    """y = (a, b'): b' = b + t (additive) or (b + t) s (affine), t and s functions of a.

    log s = -3 tanh(softplus(-raw - 2) / 3), near log sigmoid(raw + 2) where that is above -1. The
    paper has no floor; without one, errors of 1e-7 come back as 1e-3.
    """

    def __init__(self, channels: int, width: int, kind: CouplingKind) -> None:
        super().__init__()
        if kind not in get_args(CouplingKind):
            raise InputError(f"expected an affine or additive coupling, got {kind!r}")
        self.affine = kind == "affine"
        half = channels // 2
        self.enter = Conv(half, width, 3, padding=1)
        self.inner = Conv(width, width, 1)
        self.leave = ZeroConv(width, channels if self.affine else half)

    def forward(self, x: Maps) -> tuple[Maps, LogDet]:
        a, b = x.chunk(2, dim=1)
        t, log_s = self._steered(a)
        if log_s is None:
            return torch.cat([a, b + t], dim=1), x.new_zeros(())
        y = torch.cat([a, (b + t) * log_s.exp()], dim=1)
        return y, log_s.sum(dim=(1, 2, 3))

    def inverse(self, y: Maps) -> Maps:
        a, b = y.chunk(2, dim=1)
        t, log_s = self._steered(a)
        scaled = b if log_s is None else b / log_s.exp()
        return torch.cat([a, scaled - t], dim=1)

    def _steered(self, a: Maps) -> tuple[Maps, Maps | None]:
        out = self.leave(self.inner(self.enter(a).relu()).relu()).double()
        if not self.affine:
            return out, None
        t, raw = out.chunk(2, dim=1)
        return t, -FLOOR * (nn.functional.softplus(-raw - OPEN) / FLOOR).tanh()


class Step(nn.Module):
    """One step of a flow: actnorm, 1x1 convolution, coupling."""

    def __init__(self, channels: int, width: int, kind: CouplingKind) -> None:
        super().__init__()
        self.norm = ActNorm(channels)
        self.mix = Mix(channels)
        self.coupling = Coupling(channels, width, kind)

    def forward(self, x: Maps) -> tuple[Maps, LogDet]:
        x, first = self.norm(x)
        x, second = self.mix(x)
        x, third = self.coupling(x)
        return x, first + second + third

    def inverse(self, y: Maps) -> Maps:
        return self.norm.inverse(self.mix.inverse(self.coupling.inverse(y)))
