"""x times the normal distribution function."""

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rood.certify.layers._bowl import Bowl
from rood.certify.layers.base import Call


@dataclass(frozen=True)
class GELU(Bowl):
    r"""y = x F(x), F the distribution function of the standard normal distribution, f its density.

    y' = F + x f and, as f' = -x f, y'' = f (2 - x^2): positive up to |x| = sqrt(2), then negative.
    The one minimum, -0.16997..., is at x = -0.75179....
    """

    names = ("gelu",)
    bend: ClassVar[float] = math.sqrt(2)
    bottom: ClassVar[float] = -0.7517915246935645
    least: ClassVar[float] = -0.16997120747990370

    @classmethod
    def read(cls, call: Call) -> "GELU":
        if call.kwargs.get("approximate", "none") != "none":
            raise call.refusal("gelu by tanh")
        return cls()

    def value(self, *x: Tensor) -> Tensor:
        return x[0] * _below(x[0])

    def slope(self, x: Tensor) -> Tensor:
        return _below(x) + x * (-x.square() / 2).exp() / math.sqrt(2 * math.pi)


def _below(x: Tensor) -> Tensor:
    """F: by erfc, which keeps its digits where F is tiny."""
    return (-x / math.sqrt(2)).erfc() / 2
