"""Some of the numbers of a map, such as every other pixel."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rood.certify.layers.base import Call, Rearranging, Shape


@dataclass(frozen=True)
class Slicing(Rearranging):
    """y = the entries of x that an index names. Pulled back, a stands at their places, else 0."""

    index: tuple[Any, ...]  # behind the batch's
    before: Shape

    names = ("getitem",)

    @classmethod
    def read(cls, call: Call) -> "Slicing | None":
        index = call.args[1] if isinstance(call.args[1], tuple) else (call.args[1],)
        plain = all(isinstance(i, slice | int) for i in index)
        if not plain or index[0] != slice(None):
            raise call.refusal("an index that is not of slices and numbers, or chooses images")
        return cls(index[1:], call.sources[0].shape) if index[1:] else None

    def linear(self, *x: Tensor) -> Tensor:
        return x[0][(slice(None), *self.index)]

    def adjoint(self, a: Tensor) -> tuple[Tensor, ...]:
        back = torch.zeros(len(a), *self.before, dtype=a.dtype, device=a.device)
        back[(slice(None), *self.index)] = a
        return (back,)
