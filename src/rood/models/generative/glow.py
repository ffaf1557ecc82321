"""A flow: an image becomes noise by steps that can be undone, which gives its density."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn.functional import pad

from rood.errors import InputError
from rood.models.generative._flow import (
    CouplingKind,
    Drawn,
    Maps,
    Step,
    ZeroConv,
    spread,
    squeezed,
)
from rood.models.generative.base import Generative
from rood.shapes import Features, Images, Scores

DEPTH = 8  # bits of a pixel in a file
CENTRE = 0.5  # of a bin, where an image is scored
PROBED = 4  # side of the map that the probe reads


class Seen(NamedTuple):
    """What a flow makes of images."""

    nll: Scores  # in bits a pixel and channel
    z: tuple[Tensor, ...]  # of each level, the finest first


class GlowNetwork(Generative):
    """Levels of squeeze, steps (actnorm, 1x1 convolution, coupling) and split, with learned priors.

    Kingma and Dhariwal, *Glow: Generative Flow with Invertible 1x1 Convolutions*, NeurIPS 2018,
    arXiv:1807.03039. Images are reduced to `bits`, dequantised, and padded with black to sides that
    2^levels divides; the padding is part of what is explained, its cost goes to 0 in training.
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
        bits: int = 8,  # of a pixel that are looked at
    ) -> None:
        super().__init__(
            classes=classes,
            channels=channels,
            levels=levels,
            steps=steps,
            width=width,
            coupling=coupling,
            bits=bits,
        )
        if levels < 1 or steps < 1 or not 1 <= bits <= DEPTH:
            raise InputError(
                f"expected levels >= 1, steps >= 1 and bits from 1 to {DEPTH}, got {levels}, "
                f"{steps} and {bits}"
            )
        self.bins = 2**bits
        self.levels = nn.ModuleList()
        self.priors = nn.ModuleList()  # of what is split off, from what goes on
        for level in range(levels):
            c = channels * 2 ** (level + 2)
            self.levels.append(nn.ModuleList(Step(c, width, coupling) for _ in range(steps)))
            if level < levels - 1:
                self.priors.append(ZeroConv(c // 2, c))
        self.last = nn.Parameter(torch.empty(2 * c, 1, 1))  # mean and log sd of what is left
        self.pool = nn.AdaptiveAvgPool2d(PROBED)
        self.head = nn.Linear(c * PROBED**2, classes)

    def code(self, x: Images) -> Features:
        return self.probed(self.look(x).z)

    def probed(self, z: Sequence[Tensor]) -> Features:
        """Of the latents, what the probe reads: the last level's."""
        return self.pool(z[-1].to(self.last.dtype)).flatten(1)

    def look(self, x: Images, noise: Generator | None = None) -> Seen:
        """Latents and bits a dimension; noise: a place in each pixel's bin, else its centre."""
        y = 255 * x
        coarse = 2 ** (DEPTH - round(math.log2(self.bins)))
        bins = (y.detach().round() / coarse).floor()
        # + 0: to the gradient, the image itself
        return self._seen(bins + (y - y.detach()) / coarse, self.bins, noise)

    def look_between(self, x: Images) -> Seen:
        """The same at the images as they are, not at the levels next to them."""
        return self._seen(255 * x, 2**DEPTH)

    def _seen(self, y: Images, bins: int, noise: Generator | None = None) -> Seen:
        n = math.prod(y.shape[1:])
        y = pad(y, self._margins(*y.shape[2:]))
        u: Tensor | float = CENTRE
        if noise is not None:
            u = _even(y, noise)
        # bfloat16 holds no bins of 1/256, nor determinants
        with torch.autocast(y.device.type, enabled=False):
            z, log_p = self.encode((y + u).double() / bins - 0.5)
        volume = math.prod(y.shape[1:]) * math.log(self.bins)
        return Seen(((volume - log_p) / (n * math.log(2))).to(y.dtype), z)

    def encode(self, v: Maps) -> tuple[tuple[Tensor, ...], Scores]:
        """Padded images in [-1/2, 1/2] to latents, and the logarithm of their density."""
        log_p, z = v.new_zeros(v.shape[0]), []  # not len, which an export takes for a constant
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
        """The images of height and width `size` that have these latents, not rounded."""
        v = z[-1]
        for (steps, prior), rest in zip(reversed([*self._levels()]), reversed(z), strict=True):
            v = v if prior is None else torch.cat([v, rest], dim=1)
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
        """Images of its own making; temperature: of the noise they are made from."""
        left, right, top, bottom = self._margins(*size)
        h, w = size[0] + top + bottom, size[1] + left + right
        draw = lambda like: temperature * torch.randn(like.shape, generator=generator).to(like)
        z: list[Tensor] = []
        v = self.last.new_zeros(0)
        for i, (steps, prior) in reversed([*enumerate(self._levels(), start=1)]):
            if prior is None:
                v = self.last.new_zeros(n, len(self.last) // 2, h >> i, w >> i).double()
            mean, log_sd = self._expected(prior, v)
            rest = mean + log_sd.exp() * draw(mean.expand_as(v))
            z.insert(0, rest)
            v = rest if prior is None else torch.cat([v, rest], dim=1)
            for step in reversed(steps):
                v = step.inverse(v)
            v = spread(v)
        x = self.decode(z, size).clamp(0, 1)
        return (255 * x).round() / 255

    @torch.no_grad()
    def settle(self, x: Images, noise: Generator) -> None:
        def norms(step: nn.Module, given: tuple[Maps, ...]) -> None:
            assert isinstance(step, Step)
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
        elif isinstance(layer, Drawn):
            layer.start(generator)
        else:
            return super().start(layer, generator)
        return True

    def _levels(self) -> Iterator[tuple[list[Step], nn.Module | None]]:
        for i, steps in enumerate(self.levels):
            assert isinstance(steps, nn.ModuleList)
            prior = self.priors[i] if i < len(self.priors) else None
            yield [step for step in steps if isinstance(step, Step)], prior

    def _expected(self, prior: nn.Module | None, v: Maps) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation of what is split off."""
        mean, log_sd = (self.last if prior is None else prior(v)).double().chunk(2, dim=-3)
        return mean, log_sd

    def _margins(self, h: int, w: int) -> tuple[int, int, int, int]:
        """Pixels to add left, right, at the top and at the bottom."""
        unit = 2 ** len(self.levels)
        across, down = -w % unit, -h % unit
        return across // 2, across - across // 2, down // 2, down - down // 2


def _even(like: Images, noise: Generator) -> Images:
    """Numbers in [0, 1); from pinned memory, so that no step of a training waits for them."""
    u = torch.rand(like.shape, generator=noise, device=noise.device)
    if like.is_cuda and not u.is_cuda:
        u = u.pin_memory()
    return u.to(like, non_blocking=True)


def _log_normal(z: Maps, mean: Float[Tensor, "..."], log_sd: Float[Tensor, "..."]) -> Scores:
    squares = ((z - mean) * (-log_sd).exp()).square()
    return -(squares / 2 + log_sd + math.log(2 * math.pi) / 2).sum(dim=(1, 2, 3))
