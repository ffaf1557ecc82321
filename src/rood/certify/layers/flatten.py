"""The same numbers in another shape."""

from dataclasses import dataclass

from torch import Tensor

from rood.certify.layers.base import Call, Rearranging, Shape


@dataclass(frozen=True)
class Flatten(Rearranging):
    """y = x in another shape, in the same order. Pulled back, a in the shape of x."""

    before: Shape
    after: Shape

    names = ("flatten", "view", "reshape", "unflatten", "squeeze", "unsqueeze")

    @classmethod
    def read(cls, call: Call) -> "Flatten | None":
        before = call.sources[0].shape
        return None if before == call.shape else cls(before, call.shape)

    def linear(self, *x: Tensor) -> Tensor:
        return x[0].reshape(-1, *self.after)

    def adjoint(self, a: Tensor) -> tuple[Tensor, ...]:
        return (a.reshape(-1, *self.before),)
