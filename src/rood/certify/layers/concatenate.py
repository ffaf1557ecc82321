"""Maps behind one another, as in dense blocks."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rood.certify.layers.base import Call, Rearranging


@dataclass(frozen=True)
class Concatenate(Rearranging):
    """y = (x1, x2, ...) along an axis. Pulled back, each input gets its part of a."""

    axis: int  # of the batch: never 0
    sizes: tuple[int, ...]

    names = ("cat", "concat", "concatenate")

    @classmethod
    def read(cls, call: Call) -> "Concatenate":
        given = call.named("tensors", "dim", dim=0)
        axis = given["dim"] % (1 + len(call.shape))
        if axis == 0 or len(call.sources) != len(given["tensors"]):
            raise call.refusal("a concatenation of images or with constants")
        return cls(axis, tuple(s.shape[axis - 1] for s in call.sources))

    def linear(self, *x: Tensor) -> Tensor:
        return torch.cat(x, dim=self.axis)

    def adjoint(self, a: Tensor) -> tuple[Tensor, ...]:
        return a.split(self.sizes, dim=self.axis)
