"""The larger of x and 0."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rood.certify.layers.base import Call, Elementwise, Lines
from rood.numerics.box import Box, rounding


@dataclass(frozen=True)
class ReLU(Elementwise):
    r"""y = max(x, k x) over [l, u], with 0 <= k < 1: k = 0 is ReLU, others leaky.

    It is convex: the chord from (l, f(l)) to (u, f(u)) lies above it, and every line through the
    origin with a slope from k to 1 below it. Where 0 lies outside, both are the function itself.
    The lower slope is 1 if u > -l, else k: of the two, the one that leaves the smaller area, Zhang
    et al., *Efficient Neural Network Robustness Certification with General Activation Functions*,
    NeurIPS 2018, arXiv:1811.00866. Any other from k to 1 is as valid: `alpha` searches for it.
    """

    leak: float = 0.0

    names = ("relu", "leaky_relu")

    @classmethod
    def read(cls, call: Call) -> "ReLU":
        if call.name == "relu":
            return cls()
        leak = call.named("input", "negative_slope", negative_slope=0.01)["negative_slope"]
        if not 0 <= leak < 1:
            raise call.refusal(f"leaky_relu of slope {leak}")
        return cls(leak)

    def value(self, *x: Tensor) -> Tensor:
        return torch.maximum(x[0], self.leak * x[0])

    def over(self, *boxes: Box) -> Box:
        found = Box(self.value(boxes[0].low), self.value(boxes[0].high))
        return found.widened(rounding(0, found.low) * found.size) if self.leak else found

    def lines(self, box: Box) -> Lines:
        low, high = box
        on, off = (low >= 0), (high <= 0)
        straight = torch.where(on, torch.ones_like(low), torch.full_like(low, self.leak))
        crosses = ~(on | off)
        width = (high - low).where(crosses, torch.ones_like(low))
        chord = ((high - self.leak * low) / width).where(crosses, straight)
        # the least offset that puts the line above both ends, moved up by rounding
        ends = torch.maximum(self.leak * low - chord * low, high - chord * high)
        slack = rounding(4, low) * (1 + chord) * box.size
        offset = (ends + slack).where(crosses, torch.zeros_like(low))
        flat = torch.where(high > -low, torch.ones_like(low), torch.full_like(low, self.leak))
        lower = flat.where(crosses, straight)
        return Lines(lower, torch.zeros_like(low), chord, offset)

    def freedom(self, box: Box) -> Box:
        straight = self.lines(box).low_slope
        crosses = (box.low < 0) & (box.high > 0)
        least = torch.full_like(straight, self.leak).where(crosses, straight)
        return Box(least, torch.ones_like(straight).where(crosses, straight))

    def loose(self, box: Box) -> Tensor:
        return (box.low < 0) & (box.high > 0)
