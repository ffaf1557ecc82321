"""Randomness without global state: seeded by purpose, and for attacks by image.

`generator` is for everything that is drawn once (weights, shuffles). `Noise` is for attacks: a
counter-based stream for each image, keyed by the image's pixels, so that an image's noise depends
neither on its batch, nor on its place there, nor on the device.
"""

import hashlib
import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rood.shapes import Images


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """A generator that depends on the seed and the purpose alone, not on what ran before."""
    digest = hashlib.sha256(repr((seed, *purpose)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def beside(x: Images, source: torch.Generator) -> torch.Generator:
    """A generator on the images' device, faster than drawing on the CPU and copying."""
    seed = int(torch.randint(2**62, (), generator=source).item())
    return torch.Generator(x.device).manual_seed(seed)


class Noise:
    """Uniform and normal numbers for a batch of images, one independent stream per image."""

    def __init__(self, x: Images, source: torch.Generator) -> None:
        seed = torch.randint(2**62, (), generator=source, device=source.device)
        # a number, unless that would wait for the device
        self._keys = _mix(row_keys(x.detach()) + (seed if seed.is_cuda else int(seed)))
        self._shape = x.shape[1:]
        self._dtype = x.dtype
        self._draws = 0

    def uniform(self) -> Images:
        """Numbers in [0, 1), of the images' shape."""
        self._draws += 1
        n = math.prod(self._shape)
        stream = _mix(self._keys + torch.tensor(self._draws) * _ODD)  # (b,)
        bits = _mix(stream[:, None] + torch.arange(1, n + 1, device=stream.device) * _ODD)  # (b, n)
        u = ((bits >> 11) & _MASK53).double() * 2.0**-53  # >> keeps the sign; the mask drops it
        return u.to(self._dtype).view(-1, *self._shape).clamp(max=1 - 2.0**-24)

    def normal(self) -> Images:
        """Standard normal numbers, by Box and Muller's method."""
        radius = (-2 * (1 - self.uniform()).log()).sqrt()
        return radius * (2 * math.pi * self.uniform()).cos()

    def uniform_scalar(self) -> Float[Tensor, "b 1 1 1"]:
        """One number in [0, 1) for each image."""
        return self.uniform()[:, :1, :1, :1]

    def branch(self, number: int, index: Tensor | slice = slice(None)) -> "Noise":
        """New streams for some of the images, independent of these."""
        part = self.select(index)
        part._keys, part._draws = _mix(part._keys ^ _mix(torch.tensor(number + 1) * _ODD)), 0
        return part

    def select(self, index: Tensor | slice) -> "Noise":
        """The same streams for some of the images."""
        part = object.__new__(Noise)
        part.__dict__ = self.__dict__ | {"_keys": self._keys[index]}
        return part


_ODD = -7046029254386353131  # 2^64 / golden ratio, as a signed number
_MASK53 = (1 << 53) - 1


def _mix(h: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """A finalising hash of 64-bit integers (SplitMix64); overflow wraps, on purpose."""
    h = (h ^ ((h >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    h = (h ^ ((h >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return h ^ ((h >> 31) & 0x1FFFFFFFF)


def row_keys(rows: Float[Tensor, "b ..."]) -> Int[Tensor, " b"]:
    """One 64-bit number per row, from its float32 contents alone."""
    bits = rows.flatten(1).float().contiguous().view(torch.int32).long()  # (b, n)
    place = _mix(torch.arange(1, bits.shape[1] + 1, device=rows.device) * _ODD)
    return _mix(bits ^ place).sum(dim=1)
