"""A matrix times a vector."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from rood.certify.layers.base import Affine, Call


@dataclass(frozen=True)
class Linear(Affine):
    """y = W x + b. Pulled back, a.y = (W'a).x + a.b."""

    weight: Tensor
    shift: Tensor | None

    names = ("linear",)

    @classmethod
    def read(cls, call: Call) -> "Linear":
        given = call.named("input", "weight", "bias", bias=None)
        if len(call.sources) != 1 or len(call.sources[0].shape) != 1:
            raise call.refusal("a linear layer on other things than vectors")
        return cls(given["weight"], given["bias"])

    def followed(self, factor: Tensor, shift: Tensor) -> "Linear":
        bias = shift if self.shift is None else self.shift * factor + shift
        return replace(self, weight=self.weight * factor[:, None], shift=bias)

    def linear(self, *x: Tensor) -> Tensor:
        return x[0] @ self.weight.T

    def adjoint(self, a: Tensor) -> tuple[Tensor, ...]:
        return (a @ self.weight,)

    def mapped(self, f: Callable[[Tensor], Tensor]) -> "Linear":
        return replace(self, weight=f(self.weight))

    @property
    def terms(self) -> int:
        return int(self.weight.shape[1])

    def bias(self) -> Tensor | None:
        return None if self.shift is None else self.shift[None]
