"""Interval arithmetic on tensors, entry by entry."""

from typing import NamedTuple

import torch
from torch import Tensor


class Box(NamedTuple):
    """Every tensor between two, entry by entry.

    Results hold what exact arithmetic gives up to a rounding of the last digits, which
    `widened` covers where it counts.
    """

    low: Tensor
    high: Tensor

    @property
    def centre(self) -> Tensor:
        """Half way between the ends."""
        return (self.low + self.high) / 2

    @property
    def radius(self) -> Tensor:
        """Half the width."""
        return (self.high - self.low) / 2

    @property
    def size(self) -> Tensor:
        """The largest absolute value in each entry."""
        return torch.maximum(self.low.abs(), self.high.abs())

    def moved(self, by: Tensor | float) -> "Box":
        """Plus a number."""
        return Box(self.low + by, self.high + by)

    def scaled(self, by: float) -> "Box":
        """Times a positive number."""
        return Box(by * self.low, by * self.high)

    def negated(self) -> "Box":
        """Times -1."""
        return Box(-self.high, -self.low)

    def times(self, other: "Box") -> "Box":
        """Every product of an entry with an entry of another box."""
        ends = torch.stack([a * b for a in self for b in other])
        return Box(ends.amin(dim=0), ends.amax(dim=0))

    def squared(self) -> "Box":
        """Every square."""
        crosses = (self.low < 0) & (self.high > 0)
        ends = torch.stack([self.low.square(), self.high.square()])
        return Box(ends.amin(dim=0).masked_fill(crosses, 0.0), ends.amax(dim=0))

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> "Box":
        """W v + b for every row v between those of the box."""
        up, down = weight.clamp(min=0).T, weight.clamp(max=0).T
        shift = 0.0 if bias is None else bias
        low = self.low @ up + self.high @ down + shift
        return Box(low, self.high @ up + self.low @ down + shift)

    def within(self, other: "Box") -> "Box":
        """What both boxes hold. Rounding must not turn it inside out: then the middle counts."""
        low, high = torch.maximum(self.low, other.low), torch.minimum(self.high, other.high)
        middle = (low + high) / 2
        return Box(torch.minimum(low, middle), torch.maximum(high, middle))

    def widened(self, by: Tensor | float) -> "Box":
        """Each end moved outwards."""
        return Box(self.low - by, self.high + by)

    def reshaped(self, like: Tensor) -> "Box":
        """In the shape of another tensor."""
        return Box(self.low.reshape(like.shape), self.high.reshape(like.shape))

    def double(self) -> "Box":
        """In float64."""
        return Box(self.low.double(), self.high.double())


def rounding(terms: int, like: Tensor) -> float:
    """A bound of the relative rounding error of a sum of products, whatever their order.

    Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1: n u / (1 - n u) for n
    terms, u half of machine epsilon. Here with 8 more terms and twice as large.
    """
    return (terms + 8) * torch.finfo(like.dtype).eps
