"""A factor and a number to add, for each entry or channel."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from rood.certify.layers.base import Affine, Call, Shape
from rood.numerics.window import Window


@dataclass(frozen=True)
class Rescale(Affine):
    r"""y = k x + b, entry by entry: batch norm in eval mode, mean and std, other constants.

    Batch norm with running mean m and variance v is k = w / sqrt(v + e), b = w' - k m: affine, as
    m and v do not depend on the image. Pulled back, a.y = (k a).x + a.b.
    """

    factor: Tensor  # both in a shape that goes with (b, *shape)
    shift: Tensor
    shape: Shape  # of x

    names = ("batch_norm", "mul", "div", "neg")
    mixing: ClassVar[bool] = False

    @classmethod
    def read(cls, call: Call) -> "Rescale":
        if call.name == "batch_norm":
            return cls._batch_norm(call)
        if call.name == "neg":
            return cls._of(call, -1.0, 0.0)
        other, first = call.constant()
        if other is None or (call.name == "div" and not first):
            raise call.refusal(f"the {call.name} of two maps")
        return cls._of(call, 1 / other if call.name == "div" else other, 0.0)

    @classmethod
    def _batch_norm(cls, call: Call) -> "Rescale":
        names = ("input", "running_mean", "running_var", "weight", "bias", "training", "_", "eps")
        given = call.named(*names, weight=None, bias=None, training=False, eps=1e-5)
        mean, variance = given["running_mean"], given["running_var"]
        if given["training"] or mean is None or variance is None:
            raise call.refusal("batch norm that reads the statistics of the batch")
        factor = (variance + given["eps"]).rsqrt()
        factor = factor if given["weight"] is None else factor * given["weight"]
        shift = -mean * factor
        shift = shift if given["bias"] is None else shift + given["bias"]
        channels = (-1, *(1 for _ in call.shape[1:]))
        return cls(factor.view(1, *channels), shift.view(1, *channels), call.shape)

    @classmethod
    def plus(cls, call: Call, factor: float, shift: Any) -> "Rescale":
        """y = factor x + shift."""
        return cls._of(call, factor, shift)

    @classmethod
    def _of(cls, call: Call, factor: Any, shift: Any) -> "Rescale":
        if call.sources[0].shape != call.shape:
            raise call.refusal("a constant that enlarges a map")
        like = next((v for v in (factor, shift) if isinstance(v, Tensor)), torch.empty(()).double())
        given = [v if isinstance(v, Tensor) else like.new_full((), v) for v in (factor, shift)]
        missing = [1 + len(call.shape) - v.ndim for v in given]
        k, b = (v.to(like).view(*(1,) * m, *v.shape) for v, m in zip(given, missing, strict=True))
        return cls(k, b, call.shape)

    @property
    def by_channel(self) -> tuple[Tensor, Tensor] | None:
        """Factor and number of each channel; None where they differ within one."""
        given = [v.flatten(2) if v.ndim > 2 else v[..., None] for v in (self.factor, self.shift)]
        if any(v.ndim != 3 or v.shape[2] > 1 for v in given):
            return None
        factor, shift = (v.expand(1, self.shape[0], 1).reshape(-1) for v in given)
        return factor, shift

    def linear(self, *x: Tensor) -> Tensor:
        return x[0] * self.factor.to(x[0].dtype)

    def adjoint(self, a: Tensor) -> tuple[Tensor, ...]:
        return (a * self.factor.to(a.dtype),)

    def adjoint_window(self, window: Window) -> Window | None:
        factor = self.factor.to(window.a.dtype)
        if factor.ndim != 4 or factor.shape[2:] != (1, 1):
            return None
        return window._replace(a=window.a * factor.flatten())

    def mapped(self, f: Callable[[Tensor], Tensor]) -> "Rescale":
        return replace(self, factor=f(self.factor))

    @property
    def terms(self) -> int:
        return 4  # factor and shift were computed too

    def bias(self) -> Tensor:
        return self.shift.expand(1, *self.shape)
