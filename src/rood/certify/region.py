"""The images that a threat allows, and how far a linear function falls on them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rood.certify.layers.base import dot, pick
from rood.errors import InputError
from rood.numerics.box import Box, rounding
from rood.shapes import Images, wide
from rood.threat import L2, Linf, Threat

HALVINGS = 12  # of the multiplier's logarithm


@dataclass(frozen=True)
class Region:
    r"""Pixels in a box; for L2, also within a distance of the image.

    a.x >= a.c - |a|.r over the box with centre c and radius r. Over x + d with |d|_2 <= e and d
    between u and v: a.d >= sum_i min_{u_i <= d_i <= v_i} (a_i d_i + t d_i^2) - t e^2 for every
    t > 0 (Lagrange; |d|^2 - e^2 is at most 0). The minimum of an entry is at -a_i / 2t, cut to
    [u_i, v_i]. Without the cut, t = |a|_2 / 2e gives -e |a|_2; with more entries cut, t is
    smaller. Every t is sound, so it is searched for in a few steps.

    The images of a threat are float32 numbers, which rounding may have moved beyond eps by half of
    their last digit: the region is larger by that.
    """

    image: Images
    box: Box
    radius: float | None  # of L2

    @classmethod
    def around(cls, x: Images, threat: Threat, dtype: torch.dtype) -> "Region":
        """What `threat` allows around images, in another precision."""
        digit = torch.finfo(x.dtype).eps / 2  # of pixels up to 1
        x = x.to(dtype)
        if isinstance(threat, Linf):
            reach, radius = threat.eps + digit, None
        elif isinstance(threat, L2):
            reach = radius = threat.eps + digit * x[0].numel() ** 0.5
        else:
            raise InputError(f"expected an L2 or L-infinity ball to certify, got {threat}")
        return cls(x, Box((x - reach).clamp(min=0), (x + reach).clamp(max=1)), radius)

    def least(self, a: Tensor, owner: Tensor) -> Tensor:
        """A lower bound of each row's a.x."""
        relative = rounding(a[0].numel(), a)
        size = dot(a.abs(), self.box.size, owner)
        found = dot(a, self.box.centre, owner) - dot(a.abs(), self.box.radius, owner)
        if self.radius is not None:
            found = torch.maximum(found, self._least_within(a, owner, self.radius))
        return found - 4 * relative * size

    def _least_within(self, a: Tensor, owner: Tensor, e: float) -> Tensor:
        low, high = (pick(v - self.image, owner) for v in self.box)
        length = a.flatten(1).norm(dim=1)
        best = -e * length
        t = length / (2 * max(e, 1e-300))
        step = torch.full_like(t, 0.5)
        for _ in range(HALVINGS):  # the value is concave in t: too long a step d means a larger t
            d = (-a / wide(2 * t).clamp(min=1e-300)).maximum(low).minimum(high)
            squares = d.square().flatten(1).sum(dim=1)
            best = best.maximum((a * d).flatten(1).sum(dim=1) + t * (squares - e**2))
            t = torch.where(squares > e**2, t / step, t * step)
            step = step.sqrt()
        return dot(a, self.image, owner) + best
