"""x times its sigmoid."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rood.certify.layers._bowl import Bowl
from rood.certify.layers.base import Call


@dataclass(frozen=True)
class SiLU(Bowl):
    r"""y = x q, q = 1 / (1 + e^-x).

    y' = q (1 + x (1 - q)) and y'' = q (1 - q) (2 + x (1 - 2 q)). As 1 - 2 q = -tanh(x / 2), y'' has
    the sign of 2 - x tanh(x / 2), which is even and falls with |x|: positive up to |x| = 2.3993...,
    then negative. The one minimum, -0.27846..., is at x = -1.27846..., where x (1 - q) = -1.
    """

    names = ("silu",)
    bend: ClassVar[float] = 2.3993572805154677
    bottom: ClassVar[float] = -1.2784645427610738
    least: ClassVar[float] = -0.27846454276107385

    @classmethod
    def read(cls, call: Call) -> "SiLU":
        return cls()

    def value(self, *x: Tensor) -> Tensor:
        return x[0] * x[0].sigmoid()

    def slope(self, x: Tensor) -> Tensor:
        q = x.sigmoid()
        return q * (1 + x * (1 - q))
