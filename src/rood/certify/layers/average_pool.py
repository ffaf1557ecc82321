"""Means over windows of a map."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from rood.certify.layers.base import Affine, Call, Shape
from rood.certify.layers.convolution import pair


@dataclass(frozen=True)
class AveragePool(Affine):
    r"""y = P x Q', a mean over rows and one over columns, P and Q the same for all channels.

    A mean over a rectangle is a mean of means; so are adaptive windows, padding that counts and
    padding that does not. Row i of P is the mean over window i of a column, found by pooling unit
    vectors. Pulled back, a.y = (P'a Q).x.
    """

    rows: Tensor  # P, (h2, h)
    columns: Tensor  # Q, (w2, w)
    shape: Shape  # of y; (c,) where the mean is over the whole map and leaves no side

    names = ("adaptive_avg_pool2d", "avg_pool2d", "mean")

    @classmethod
    def read(cls, call: Call) -> "AveragePool | None":
        _, *sides = call.sources[0].shape
        pools = _pools(call)
        rows, columns = (pool(torch.eye(n).double()) for pool, n in zip(pools, sides, strict=True))
        if all(torch.equal(m, torch.eye(len(m)).double()) for m in (rows, columns)):
            return None
        return cls(rows, columns, call.shape)

    def linear(self, *x: Tensor) -> Tensor:
        rows, columns = self.rows.to(x[0]), self.columns.to(x[0])
        return (rows @ x[0] @ columns.T).reshape(len(x[0]), *self.shape)

    def adjoint(self, a: Tensor) -> tuple[Tensor, ...]:
        rows, columns = self.rows.to(a), self.columns.to(a)
        a = a.reshape(len(a), -1, len(rows), len(columns))
        return (rows.T @ a @ columns,)

    def mapped(self, f: Callable[[Tensor], Tensor]) -> "AveragePool":
        return replace(self, rows=f(self.rows), columns=f(self.columns))

    @property
    def terms(self) -> int:
        return self.rows.shape[1] + self.columns.shape[1]


Pool = Callable[[Tensor], Tensor]  # (n, h) unit vectors -> the matrix (h2, h)


def _pools(call: Call) -> tuple[Pool, Pool]:
    """The pooling of a column and of a row."""
    sides = call.sources[0].shape[1:]
    if len(sides) != 2:
        raise call.refusal(f"{call.name} of other things than maps")
    if call.name == "mean":
        return _mean(call)
    if call.name == "adaptive_avg_pool2d":
        given = call.named("input", "output_size")["output_size"]
        sizes = given if isinstance(given, tuple | list) else (given, given)
        sizes = [n if m is None else m for m, n in zip(sizes, sides, strict=True)]
        adaptive = lambda m: lambda v: functional.adaptive_avg_pool1d(v[:, None], m)[:, 0].T
        return adaptive(sizes[0]), adaptive(sizes[1])
    names = ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
    usual = {"stride": None, "padding": 0, "ceil_mode": False, "count_include_pad": True}
    given = call.named(*names, "divisor_override", **usual)
    if given.get("divisor_override") is not None:
        raise call.refusal("avg_pool2d with a divisor of its own")
    kernel = pair(given["kernel_size"])
    stride = pair(given["stride"]) if given["stride"] else kernel
    more = (given["ceil_mode"], given["count_include_pad"])
    windows = zip(kernel, stride, pair(given["padding"]), strict=True)
    fixed = lambda k, s, z: lambda v: functional.avg_pool1d(v[:, None], k, s, z, *more)[:, 0].T
    rows, columns = (fixed(*window) for window in windows)
    return rows, columns


def _mean(call: Call) -> tuple[Pool, Pool]:
    given = call.named("input", "dim", "keepdim", dim=None, keepdim=False)
    dims = given["dim"] if isinstance(given["dim"], tuple | list) else (given["dim"],)
    if {d % 4 for d in dims if d is not None} != {2, 3}:
        raise call.refusal("a mean over other axes than both sides of a map")
    whole = lambda v: v.mean(dim=1)[None]
    return whole, whole
