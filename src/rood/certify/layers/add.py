"""The sum or difference of two maps, such as a residual block and its shortcut."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rood.certify.layers.base import Affine, Call, Operation
from rood.certify.layers.rescale import Rescale


@dataclass(frozen=True)
class Add(Affine):
    r"""y = x1 + s x2 with s = 1 or -1. Pulled back, a.y = a.x1 + (s a).x2.

    Where both inputs come from one map, the backward pass adds up what reaches it along both paths:
    what interval bounds lose, it keeps. With one constant operand it is a `Rescale`.
    """

    sign: float

    names = ("add", "sub", "rsub")

    @classmethod
    def read(cls, call: Call) -> Operation:
        if call.kwargs.get("alpha", 1) != 1:
            raise call.refusal(f"{call.name} with alpha")
        other, first = call.constant()
        minus = call.name != "add"
        if other is not None:
            swapped = minus and (first == (call.name == "rsub"))  # constant - x
            value = -other if minus and not swapped else other
            return Rescale.plus(call, -1.0 if swapped else 1.0, value)
        if any(s.shape != call.shape for s in call.sources) or call.name == "rsub":
            raise call.refusal("a sum of maps of different shapes")
        return cls(-1.0 if minus else 1.0)

    def linear(self, *x: Tensor) -> Tensor:
        return x[0] + self.sign * x[1]

    def adjoint(self, a: Tensor) -> tuple[Tensor, ...]:
        return a, self.sign * a

    def mapped(self, f: Callable[[Tensor], Tensor]) -> "Add":
        return Add(float(f(torch.tensor(self.sign))))

    @property
    def terms(self) -> int:
        return 2
