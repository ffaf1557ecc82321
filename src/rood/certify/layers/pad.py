"""Zeros around a map."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn import functional

from rood.certify.layers.base import Call, Rearranging


@dataclass(frozen=True)
class Pad(Rearranging):
    """y = x with zeros beside it. Pulled back, a without the coefficients of the zeros."""

    widths: tuple[int, ...]  # before and behind, the last axis first

    names = ("pad",)

    @classmethod
    def read(cls, call: Call) -> "Pad":
        given: dict[str, Any] = call.named("input", "pad", "mode", "value", mode="constant")
        if given["mode"] != "constant" or given.get("value") or len(given["pad"]) > 6:
            raise call.refusal("padding by other things than zeros")
        return cls(tuple(given["pad"]))

    def linear(self, *x: Tensor) -> Tensor:
        return functional.pad(x[0], self.widths)

    def adjoint(self, a: Tensor) -> tuple[Tensor, ...]:
        return (functional.pad(a, [-w for w in self.widths]),)
