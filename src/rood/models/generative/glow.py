"""Glow: a normalizing flow, whose invertible steps give the density of an image.

Every `forward` of a step returns the maps and log |det J|, one number per image or one for all.
Maps are float64 whatever the weights are, because the inverse amplifies rounding errors. Outside
training the convolutions compute in float64 too: in float32, an input that is off by 1e-13 is
sometimes rounded the other way, which is 1e-4 in a pixel after the inverse.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias, get_args

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn.functional import pad

from rood.errors import expect
from rood.models.generative.base import Generative
from rood.shapes import Features, Images, Scores

Maps: TypeAlias = Float[Tensor, "b c h w"]
LogDet: TypeAlias = Float[Tensor, ""] | Float[Tensor, " b"]
CouplingKind = Literal["affine", "additive"]

LEAST_STD = 1e-6  # of a constant channel
OPEN = 2.0  # added before the sigmoid, so that a new coupling is near the identity
FLOOR = 3.0  # a coupling scales by at least e^-3, which bounds the inverse
DEPTH = 8  # bits of a pixel in a file
CENTRE = 0.5  # of a bin, where an image is scored
PROBED = 4  # side of the map that the probe reads


def squeezed(x: Maps) -> Float[Tensor, "b c4 h2 w2"]:
    """Each 2x2 square becomes one position with four times the channels."""
    b, c, h, w = x.shape
    return (
        x.view(b, c, h // 2, 2, w // 2, 2)
        .permute(0, 1, 3, 5, 2, 4)
        .reshape(b, 4 * c, h // 2, w // 2)
    )


def spread(x: Maps) -> Float[Tensor, "b c1 h1 w1"]:
    """The inverse of `squeezed`."""
    b, c, h, w = x.shape
    return x.view(b, c // 4, 2, 2, h, w).permute(0, 1, 4, 2, 5, 3).reshape(b, c // 4, 2 * h, 2 * w)


class SelfInitialised(nn.Module, ABC):
    """A layer that sets its own initial values."""

    @abstractmethod
    def start(self, generator: Generator) -> None:
        """Set the weights and buffers of this layer."""


class ActNorm(SelfInitialised):
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
        """Initialise so that these maps get mean 0 and standard deviation 1."""
        self.bias.copy_(-x.mean(dim=(0, 2, 3)))
        self.log_scale.copy_(-x.std(dim=(0, 2, 3)).clamp_min(LEAST_STD).log())

    def forward(self, x: Maps) -> tuple[Maps, LogDet]:
        y = (x + self.bias.view(-1, 1, 1)) * self._scale()
        return y, self.log_scale.double().sum() * (x.shape[2] * x.shape[3])

    def inverse(self, y: Maps) -> Maps:
        return y / self._scale() - self.bias.view(-1, 1, 1)

    def _scale(self) -> Float[Tensor, "c 1 1"]:
        return self.log_scale.double().exp().view(-1, 1, 1)


class InvertibleConv(SelfInitialised):
    """y = W x at every position, W = P L (U + diag(sign exp(log_size))): a 1x1 convolution.

    P is a fixed permutation; L is lower triangular with ones on its diagonal, U upper triangular
    with zeros on its diagonal.
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
    """A convolution in float64, except in training, which needs no inverse.

    Exported and compiled programs use float32 too, since runtimes have no float64 convolution.
    """

    def forward(self, x: Maps) -> Float[Tensor, "b d h w"]:
        quick = self.training or torch.compiler.is_compiling()
        like = self.weight if quick else x.double()
        bias = None if self.bias is None else self.bias.to(like)
        return self._conv_forward(x.to(like), self.weight.to(like), bias)


class ZeroConv(Conv, SelfInitialised):
    """A 3x3 convolution that is initialised to 0, so that its coupling starts near the identity."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(before, after, 3, padding=1)

    def start(self, generator: Generator) -> None:
        for parameter in self.parameters():
            parameter.zero_()


class Coupling(nn.Module):
    """y = (a, b'): b' = b + t (additive) or (b + t) s (affine), t and s functions of a.

    log s = -3 tanh(softplus(-raw - 2) / 3), near log sigmoid(raw + 2) where that is above -1. The
    paper has no floor; without one, the inverse amplifies errors of 1e-7 to 1e-3.
    """

    def __init__(self, channels: int, width: int, kind: CouplingKind) -> None:
        super().__init__()
        expect(kind in get_args(CouplingKind), "an affine or additive coupling", repr(kind))
        self.affine = kind == "affine"
        half = channels // 2
        self.enter = Conv(half, width, 3, padding=1)
        self.inner = Conv(width, width, 1)
        self.leave = ZeroConv(width, channels if self.affine else half)

    def forward(self, x: Maps) -> tuple[Maps, LogDet]:
        a, b = x.chunk(2, dim=1)
        t, log_s = self._coefficients(a)
        if log_s is None:
            return torch.cat([a, b + t], dim=1), x.new_zeros(())
        y = torch.cat([a, (b + t) * log_s.exp()], dim=1)
        return y, log_s.sum(dim=(1, 2, 3))

    def inverse(self, y: Maps) -> Maps:
        a, b = y.chunk(2, dim=1)
        t, log_s = self._coefficients(a)
        scaled = b if log_s is None else b / log_s.exp()
        return torch.cat([a, scaled - t], dim=1)

    def _coefficients(self, a: Maps) -> tuple[Maps, Maps | None]:
        out = self.leave(self.inner(self.enter(a).relu()).relu()).double()
        if not self.affine:
            return out, None
        t, raw = out.chunk(2, dim=1)
        return t, -FLOOR * (nn.functional.softplus(-raw - OPEN) / FLOOR).tanh()


class FlowStep(nn.Module):
    """One step of a flow: actnorm, 1x1 convolution, coupling."""

    def __init__(self, channels: int, width: int, kind: CouplingKind) -> None:
        super().__init__()
        self.norm = ActNorm(channels)
        self.mix = InvertibleConv(channels)
        self.coupling = Coupling(channels, width, kind)

    def forward(self, x: Maps) -> tuple[Maps, LogDet]:
        x, first = self.norm(x)
        x, second = self.mix(x)
        x, third = self.coupling(x)
        return x, first + second + third

    def inverse(self, y: Maps) -> Maps:
        return self.norm.inverse(self.mix.inverse(self.coupling.inverse(y)))


class FlowOutput(NamedTuple):
    """The output of a flow."""

    nll: Scores  # in bits per pixel and channel
    z: tuple[Tensor, ...]  # latents of each level, the finest first


class GlowNetwork(Generative):
    """Levels of squeeze, steps (actnorm, 1x1 convolution, coupling) and split, with learned priors.

    Kingma and Dhariwal, *Glow: Generative Flow with Invertible 1x1 Convolutions*, NeurIPS 2018,
    arXiv:1807.03039. Images are quantised to `bits`, dequantised, and padded with black to
    multiples of 2^levels; the likelihood includes the padding, whose cost goes to 0 in training.
    """

    def __init__(
        self,
        *,
        classes: int = 10,
        channels: int = 3,
        levels: int = 3,
        steps: int = 8,  # of each level
        width: int = 128,  # of the couplings' networks
        coupling: CouplingKind = "affine",
        bits: int = 8,  # per pixel that the flow sees
    ) -> None:
        super().__init__(classes=classes, channels=channels)
        holds = levels >= 1 and steps >= 1 and 1 <= bits <= DEPTH
        what = f"levels >= 1, steps >= 1 and bits from 1 to {DEPTH}"
        expect(holds, what, levels, steps, bits)
        self.bins = 2**bits
        self.levels = nn.ModuleList()
        self.priors = nn.ModuleList()  # of the split-off half, given the other half
        for level in range(levels):
            c = channels * 2 ** (level + 2)
            self.levels.append(nn.ModuleList(FlowStep(c, width, coupling) for _ in range(steps)))
            if level < levels - 1:
                self.priors.append(ZeroConv(c // 2, c))
        self.last = nn.Parameter(torch.empty(2 * c, 1, 1))  # mean and log sd of the last latents
        self.pool = nn.AdaptiveAvgPool2d(PROBED)
        self.head = nn.Linear(c * PROBED**2, classes)

    def code(self, x: Images) -> Features:
        return self.probed(self.look(x).z)

    def probed(self, z: Sequence[Tensor]) -> Features:
        """The input of the linear probe: the latents of the last level."""
        return self.pool(z[-1].to(self.last.dtype)).flatten(1)

    def look(self, x: Images, noise: Generator | None = None) -> FlowOutput:
        """Latents and bits per dimension; dequantised by noise, or at the centre of each bin."""
        y = 255 * x
        coarse = 2 ** (DEPTH - round(math.log2(self.bins)))
        bins = (y.detach().round() / coarse).floor()
        # adds 0, with the gradient of the image: straight-through
        return self._seen(bins + (y - y.detach()) / coarse, self.bins, noise)

    def look_between(self, x: Images) -> FlowOutput:
        """As `look`, without rounding the image to 8 bits."""
        return self._seen(255 * x, 2**DEPTH)

    def _seen(self, y: Images, bins: int, noise: Generator | None = None) -> FlowOutput:
        n = math.prod(y.shape[1:])
        y = pad(y, self._margins(*y.shape[2:]))
        u: Tensor | float = CENTRE
        if noise is not None:
            u = _even(y, noise)
        # bfloat16 represents neither bins of 1/256 nor determinants
        with torch.autocast(y.device.type, enabled=False):
            z, log_p = self.encode((y + u).double() / bins - 0.5)
        volume = math.prod(y.shape[1:]) * math.log(self.bins)
        return FlowOutput(((volume - log_p) / (n * math.log(2))).to(y.dtype), z)

    def encode(self, v: Maps) -> tuple[tuple[Tensor, ...], Scores]:
        """Latents and log density of padded images in [-1/2, 1/2]."""
        log_p, z = v.new_zeros(v.shape[0]), []  # not len(), which an export would make a constant
        for steps, prior in self._levels():
            v = squeezed(v)
            for step in steps:
                v, log_det = step(v)
                log_p = log_p + log_det
            v, rest = (v, v) if prior is None else v.chunk(2, dim=1)
            z.append(rest)
            log_p = log_p + _log_normal(rest, *self._expected(prior, v))
        return tuple(z), log_p

    def decode(self, z: Sequence[Tensor], size: tuple[int, int]) -> Images:
        """The images of height and width `size` with these latents, not rounded."""
        return self._decoded(lambda level, prior, v: z[level], size)

    def _decoded(
        self, latent: Callable[[int, nn.Module | None, Tensor], Tensor], size: tuple[int, int]
    ) -> Images:
        """Levels undone from the last to the first; `latent` gives those of each level."""
        v = self.last.new_zeros(0)
        for i, (steps, prior) in reversed([*enumerate(self._levels())]):
            rest = latent(i, prior, v)
            v = rest if prior is None else torch.cat([v, rest], dim=1)
            for step in reversed(steps):
                v = step.inverse(v)
            v = spread(v)
        left, _, top, _ = self._margins(*size)
        v = v[:, :, top : top + size[0], left : left + size[1]]
        return ((2**DEPTH * (v + 0.5) - CENTRE) / 255).to(self.last.dtype)

    @torch.no_grad()
    def samples(
        self, n: int, size: tuple[int, int], generator: Generator, temperature: float = 0.7
    ) -> Images:
        """Random samples; temperature: standard deviation of the latent noise."""
        left, right, top, bottom = self._margins(*size)
        h, w = size[0] + top + bottom, size[1] + left + right

        def drawn(level: int, prior: nn.Module | None, v: Tensor) -> Tensor:
            if prior is None:
                deep = level + 1
                v = self.last.new_zeros(n, len(self.last) // 2, h >> deep, w >> deep).double()
            mean, log_sd = self._expected(prior, v)
            noise = torch.randn(v.shape, generator=generator).to(mean)
            return mean + log_sd.exp() * (temperature * noise)

        x = self._decoded(drawn, size).clamp(0, 1)
        return (255 * x).round() / 255

    @torch.no_grad()
    def settle(self, x: Images, noise: Generator) -> None:
        def norms(step: nn.Module, given: tuple[Maps, ...]) -> None:
            assert isinstance(step, FlowStep)
            step.norm.settle(*given)

        steps = [step for steps, _ in self._levels() for step in steps]
        handles = [step.register_forward_pre_hook(norms) for step in steps]
        try:
            self.look(x, noise)
        finally:
            for handle in handles:
                handle.remove()

    def start(self, layer: nn.Module, generator: Generator) -> bool:
        if layer is self:
            self.last.zero_()
        elif isinstance(layer, SelfInitialised):
            layer.start(generator)
        else:
            return super().start(layer, generator)
        return True

    def _levels(self) -> Iterator[tuple[list[FlowStep], nn.Module | None]]:
        for i, steps in enumerate(self.levels):
            assert isinstance(steps, nn.ModuleList)
            prior = self.priors[i] if i < len(self.priors) else None
            yield [step for step in steps if isinstance(step, FlowStep)], prior

    def _expected(self, prior: nn.Module | None, v: Maps) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation of the latents of a level."""
        mean, log_sd = (self.last if prior is None else prior(v)).double().chunk(2, dim=-3)
        return mean, log_sd

    def _margins(self, h: int, w: int) -> tuple[int, int, int, int]:
        """Padding left, right, top and bottom, in pixels."""
        unit = 2 ** len(self.levels)
        across, down = -w % unit, -h % unit
        return across // 2, across - across // 2, down // 2, down - down // 2


def _even(like: Images, noise: Generator) -> Images:
    """Uniform noise in [0, 1), copied from pinned memory so that training does not wait."""
    u = torch.rand(like.shape, generator=noise, device=noise.device)
    if like.is_cuda and not u.is_cuda:
        u = u.pin_memory()
    return u.to(like, non_blocking=True)


def _log_normal(z: Maps, mean: Float[Tensor, "..."], log_sd: Float[Tensor, "..."]) -> Scores:
    squares = ((z - mean) * (-log_sd).exp()).square()
    return -(squares / 2 + log_sd + math.log(2 * math.pi) / 2).sum(dim=(1, 2, 3))
