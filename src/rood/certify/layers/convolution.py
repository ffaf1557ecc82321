"""Two-dimensional convolution."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from torch.nn import functional

from rood.certify.layers.base import Affine, Call
from rood.numerics.window import Window


@dataclass(frozen=True)
class Convolution(Affine):
    r"""y = w * x + b: a linear layer whose matrix repeats the kernel.

    y_o(p) = sum_ci w_oci x_c(s p + d i - z) + b_o for stride s, dilation d and zero padding z. The
    coefficient of x_c(q) in a.y is the sum of a_o(p) w_oci over the o, p, i with s p + d i - z = q:
    the transposed convolution of a. Its output is as large as x where `rest` pixels, which no
    window reaches in full, are added at the end.
    """

    weight: Tensor
    shift: Tensor | None
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    size: tuple[int, int]  # of x

    names = ("conv2d",)

    @classmethod
    def read(cls, call: Call) -> "Convolution":
        names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
        given = call.named(*names, bias=None, stride=1, padding=0, dilation=1, groups=1)
        if isinstance(given["padding"], str):
            raise call.refusal(f"a convolution with padding {given['padding']!r}")
        return cls(
            given["weight"],
            given["bias"],
            pair(given["stride"]),
            pair(given["padding"]),
            pair(given["dilation"]),
            given["groups"],
            (call.sources[0].shape[1], call.sources[0].shape[2]),
        )

    def followed(self, factor: Tensor, shift: Tensor) -> "Convolution":
        weight = self.weight * factor.view(-1, 1, 1, 1)
        bias = shift if self.shift is None else self.shift * factor + shift
        return replace(self, weight=weight, shift=bias)

    def linear(self, *x: Tensor) -> Tensor:
        return functional.conv2d(
            x[0], self.weight, None, self.stride, self.padding, self.dilation, self.groups
        )

    def adjoint(self, a: Tensor) -> tuple[Tensor, ...]:
        rest = [
            n - ((m - 1) * s - 2 * z + d * (k - 1) + 1)
            for n, m, s, z, d, k in zip(
                self.size,
                a.shape[2:],
                self.stride,
                self.padding,
                self.dilation,
                self.weight.shape[2:],
                strict=True,
            )
        ]
        found = functional.conv_transpose2d(
            a, self.weight, None, self.stride, self.padding, rest, self.groups, self.dilation
        )
        return (found,)

    def adjoint_window(self, window: Window) -> Window | None:
        """Of the window from row t on, the one from s t - z on."""
        if self.groups > 1:
            return None
        a = window.transposed(self.weight, self.stride, self.dilation)
        top, left = (
            first * s - z
            for first, s, z in zip(
                (window.top, window.left), self.stride, self.padding, strict=True
            )
        )
        return Window(a, top, left).cut(self.size)

    def mapped(self, f: Callable[[Tensor], Tensor]) -> "Convolution":
        return replace(self, weight=f(self.weight))

    @property
    def terms(self) -> int:
        back = self.weight.shape[0] * self.weight[0, 0].numel()  # of the transposed one
        return max(self.weight[0].numel(), back)

    def bias(self) -> Tensor | None:
        return None if self.shift is None else self.shift.view(1, -1, 1, 1)


def pair(given: Any) -> tuple[int, int]:
    """One number for both directions, or one for each."""
    found = (given, given) if isinstance(given, int) else tuple(given)
    return (found[0], found[0]) if len(found) == 1 else (found[0], found[1])
