"""Smooth activations that bend upwards around 0 and downwards beyond."""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from rood.certify.layers.base import Elementwise, Lines
from rood.numerics.box import Box, rounding

HALVINGS = 40


class Bowl(Elementwise):
    r"""y = f(x), f convex on [-c, c] and concave on both sides, with one minimum.

    A line of any slope k lies below f over [l, u] with offset min g, above it with max g, for
    g(x) = f(x) - k x. The minimum of g is at l, at u or in [-c, c], where g is convex: there the
    tangent at any point p lies below g, and min g >= min over the ends e of g(p) + g'(p) (e - p).
    With p near the minimum, found by halving since g' grows, next to nothing is lost; that p is
    not exact makes nothing wrong. The maximum alike: at l, at u, or on a concave side, where
    tangents lie above. Of some slopes, the one whose line is best in the middle is taken.
    """

    bend: ClassVar[float]  # c
    bottom: ClassVar[float]  # where the minimum is
    least: ClassVar[float]  # at most the minimum

    @abstractmethod
    def slope(self, x: Tensor) -> Tensor:
        """f'(x)."""

    def over(self, *boxes: Box) -> Box:
        low, high = boxes[0]
        ends = self.value(low), self.value(high)
        around = (low <= self.bottom) & (high >= self.bottom)
        least = torch.minimum(*ends).masked_fill(around, self.least)
        return Box(least, torch.maximum(*ends)).widened(rounding(32, low) * (1 + boxes[0].size))

    def lines(self, box: Box) -> Lines:
        low, high = box
        middle, width = (low + high) / 2, high - low
        chord = (self.value(high) - self.value(low)) / width.where(width > 0, torch.ones_like(low))
        found = [
            (k, *self._offsets(k, box))
            for k in (
                chord.clamp(-0.2, 1.2),
                *map(self.slope, (low, middle, high)),
                torch.zeros_like(low),
                torch.ones_like(low),
            )
        ]
        slopes, below, above = map(torch.stack, zip(*found, strict=True))
        first = (slopes * middle + below).argmax(dim=0, keepdim=True)
        last = (slopes * middle + above).argmin(dim=0, keepdim=True)
        chosen = lambda v, place: v.gather(0, place).squeeze(0)
        return Lines(
            chosen(slopes, first), chosen(below, first), chosen(slopes, last), chosen(above, last)
        )

    def _offsets(self, k: Tensor, box: Box) -> tuple[Tensor, Tensor]:
        """min g and max g over the box, no tighter than true."""
        low, high = box
        ends = torch.stack([self.value(v) - k * v for v in box])
        least = self._extreme(k, low.clamp(min=-self.bend), high.clamp(max=self.bend), 1)
        left = self._extreme(k, low, high.clamp(max=-self.bend), -1)
        right = self._extreme(k, low.clamp(min=self.bend), high, -1)
        slack = rounding(32, low) * (1 + k.abs()) * (1 + box.size)
        most = torch.maximum(left, right).maximum(ends.amax(dim=0))
        return least.minimum(ends.amin(dim=0)) - slack, most + slack

    def _extreme(self, k: Tensor, start: Tensor, end: Tensor, sign: int) -> Tensor:
        """min g over [start, end], where it is convex; with sign -1, max g where it is concave.

        Infinite where the interval is empty.
        """
        a, b = start, torch.maximum(start, end)
        for _ in range(HALVINGS):
            p = (a + b) / 2
            beyond = sign * (self.slope(p) - k) > 0
            a, b = torch.where(beyond, a, p), torch.where(beyond, p, b)
        p = (a + b) / 2
        slope = self.slope(p) - k
        change = torch.stack([slope * (start - p), slope * (end - p)])
        tip = self.value(p) - k * p + (change.amin(dim=0) if sign > 0 else change.amax(dim=0))
        return tip.masked_fill(start > end, sign * torch.inf)
