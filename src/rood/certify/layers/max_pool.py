"""Maxima over windows of a map."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rood.certify.layers.base import Call, Operation, Pulled, Relaxation, Shape, dot, pick
from rood.certify.layers.convolution import pair
from rood.numerics.box import Box, rounding


@dataclass(frozen=True)
class MaxPool(Operation):
    r"""y = max x_j over a window, with x_j in [l_j, u_j].

    Below: y >= x_m with m the entry of largest l_m. Above: y <= max u_j, a constant; where l_m is
    at least every other u_j, y = x_m exactly. A maximum grows with each x_j, so the maxima of the
    l_j and of the u_j are its interval.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    ceil: bool

    names = ("max_pool2d",)

    @classmethod
    def read(cls, call: Call) -> "MaxPool":
        names = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
        usual: dict[str, Any] = {"stride": None, "padding": 0, "dilation": 1, "ceil_mode": False}
        given = call.named(*names, **usual)
        if pair(given["dilation"]) != (1, 1):
            raise call.refusal("max_pool2d with dilation")
        kernel = pair(given["kernel_size"])
        stride = pair(given["stride"]) if given["stride"] else kernel
        return cls(kernel, stride, pair(given["padding"]), bool(given["ceil_mode"]))

    def value(self, *x: Tensor) -> Tensor:
        return self._pooled(x[0])[0]

    def over(self, *boxes: Box) -> Box:
        return Box(self.value(boxes[0].low), self.value(boxes[0].high))

    def relaxed(self, *boxes: Box) -> "Maximum":
        low, high = boxes[0]
        best, place = self._pooled(low)
        top = self.value(high)
        number = torch.arange(low[0, 0].numel(), device=low.device).view(1, 1, *low.shape[2:])
        numbers = self._windows(number.double(), -1.0, top.shape)
        itself = numbers == place[..., None]
        others = self._windows(high, -torch.inf, top.shape).masked_fill(itself, -torch.inf)
        exact = best >= others.amax(dim=-1)
        size = torch.maximum(best.abs(), top.abs())
        return Maximum(place.flatten(2), exact.to(low.dtype), top, size, tuple(low.shape[1:]))

    def _pooled(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Maxima, and the place of each within its channel."""
        found: tuple[Tensor, Tensor] = functional.max_pool2d(
            x, self.kernel, self.stride, self.padding, 1, self.ceil, return_indices=True
        )
        return found

    def _windows(self, x: Tensor, fill: float, shape: Sequence[int]) -> Tensor:
        """What each window sees, (b, c, h2, w2, k), with `fill` outside the map."""
        beside: list[int] = []
        for n, m, k, s, z in zip(
            x.shape[2:], shape[2:], self.kernel, self.stride, self.padding, strict=True
        ):
            beside = [z, max(0, (m - 1) * s + k - n - z), *beside]
        x = functional.pad(x, beside, value=fill)
        seen = x.unfold(2, self.kernel[0], self.stride[0]).unfold(3, self.kernel[1], self.stride[1])
        return seen[:, :, : shape[2], : shape[3]].flatten(4)


@dataclass(frozen=True)
class Maximum(Relaxation):
    """One entry of each window; above, a constant where another may be larger."""

    place: Tensor  # (b, c, n): within the channel
    exact: Tensor  # (b, c, h2, w2): 1 where the entry is the maximum
    top: Tensor  # (b, c, h2, w2)
    size: Tensor  # of the maximum
    before: Shape

    def pull(self, a: Tensor, owner: Tensor) -> Pulled:
        up, down = a.clamp(min=0), a.clamp(max=0)
        exact, top = pick(self.exact, owner), pick(self.top, owner)
        slope = (up + down * exact).flatten(2)
        back = torch.zeros(len(a), *self.before, dtype=a.dtype, device=a.device).flatten(2)
        back.scatter_add_(2, pick(self.place, owner).expand_as(slope), slope)
        offset = (down * (1 - exact) * top).flatten(1).sum(dim=1)
        slack = rounding(a[0].numel(), a) * dot(a.abs(), self.size, owner)
        return Pulled((back.reshape(len(a), *self.before),), offset, slack)
