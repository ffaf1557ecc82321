"""Coefficients of maps that are 0 outside a small window."""

from typing import NamedTuple

import torch
from torch import Tensor


class Window(NamedTuple):
    """Rows of coefficients of a map (c, h, w), each known in a window of it and 0 elsewhere.

    A neuron of a convolution reads a few pixels of a map: the others need no arithmetic. A window
    may reach beyond the map; its coefficients are 0 there. Channels come last, so that a matrix
    product reads them in order.
    """

    a: Tensor  # (m, kh, kw, c)
    top: Tensor  # (m,): the row of the map that the window begins with
    left: Tensor  # (m,)

    @classmethod
    def of_entries(cls, factors: Tensor, entries: Tensor, shape: tuple[int, ...]) -> "Window":
        """A factor times one entry of the flattened map, for each row."""
        channels, h, w = shape
        a = factors.new_zeros(len(entries), 1, 1, channels)
        a[torch.arange(len(a), device=a.device), 0, 0, entries // (h * w)] = factors
        return cls(a, entries // w % h, entries % w)

    def smaller(self, shape: tuple[int, ...]) -> bool:
        """Whether it saves anything over the whole map."""
        return self.a[0].numel() < torch.Size(shape).numel()

    def places(self, sides: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Index of each entry in the flattened map, (m, kh kw), and whether it lies on the map."""
        found = []
        for first, n, side in zip((self.top, self.left), self.a.shape[1:3], sides, strict=True):
            at = first[:, None] + torch.arange(n, device=first.device)
            found.append((at.clamp(0, side - 1), (at >= 0) & (at < side)))
        (rows, there), (columns, here) = found
        index = rows[:, :, None] * sides[1] + columns[:, None]
        return index.flatten(1), (there[:, :, None] & here[:, None]).flatten(1)

    def under(self, v: Tensor, owner: Tensor) -> Tensor:
        """The values (b, k, h, w) of its owner's map under each window; any beyond the map."""
        index, _ = self.places(tuple(v.shape[2:]))
        if len(v) > 1:
            index = index + owner[:, None] * v[0, 0].numel()
        pixels = v.permute(0, 2, 3, 1).reshape(-1, v.shape[1])
        return pixels.index_select(0, index.flatten()).view(*self.a.shape[:3], -1)

    def at_most(self, size: Tensor, owner: Tensor) -> Tensor:
        """At least the sum of |a| size for each row, by each channel's largest entry."""
        largest = size.flatten(2).amax(dim=2)  # (b, c)
        total = self.a.abs().sum(dim=(1, 2))  # (m, c)
        return (total * (largest if len(size) == 1 else largest[owner])).sum(dim=1)

    def cut(self, sides: tuple[int, ...]) -> "Window":
        """0 beyond the map."""
        _, there = self.places(sides)
        return self._replace(a=self.a * there.view(*self.a.shape[:3], 1))

    def transposed(
        self, weight: Tensor, stride: tuple[int, ...], dilation: tuple[int, ...]
    ) -> Tensor:
        """The transposed convolution of the coefficients, weight (c, c2, k, k), not padded."""
        m, kh, kw, c = self.a.shape
        after, sides = weight.shape[1], weight.shape[2:]
        pieces = self.a.reshape(-1, c) @ weight.permute(0, 2, 3, 1).reshape(c, -1)
        pieces = pieces.view(m, kh, kw, *sides, after)
        size = [
            (n - 1) * s + d * (k - 1) + 1
            for n, s, d, k in zip((kh, kw), stride, dilation, sides, strict=True)
        ]
        found = self.a.new_zeros(m, *size, after)
        for i in range(sides[0]):
            for j in range(sides[1]):
                down, right = i * dilation[0], j * dilation[1]
                rows = slice(down, down + (kh - 1) * stride[0] + 1, stride[0])
                columns = slice(right, right + (kw - 1) * stride[1] + 1, stride[1])
                found[:, rows, columns] += pieces[:, :, :, i, j]
        return found

    def whole(self, shape: tuple[int, ...]) -> Tensor:
        """The coefficients of the whole map, (m, c, h, w)."""
        index, _ = self.places(shape[1:])
        found = self.a.new_zeros(len(self.a), shape[1] * shape[2], shape[0])
        found.scatter_add_(1, index[:, :, None].expand(-1, -1, shape[0]), self.a.flatten(1, 2))
        return found.transpose(1, 2).reshape(-1, *shape)
