"""What a certificate needs of a layer: bounds of its output, and lines around it.

Two things are said of a layer over a box of inputs. `over` gives a box of outputs (interval
bounds). `relaxed` gives two functions, linear in the inputs, between which the output lies; a
backward pass pulls a linear function of the outputs through them to one of the inputs (CROWN).

Rounding: a layer is computed in the dtype of its weights. Each result is moved outwards by what
`numerics.box.rounding` says of its sums, so that both hold in exact arithmetic.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import torch
from torch import Tensor

from rood.errors import CapabilityError
from rood.numerics.box import Box, rounding
from rood.numerics.window import Window

Shape = tuple[int, ...]  # without the batch


@dataclass(frozen=True)
class Tracked:
    """Stands for a tensor that depends on the image, in the arguments of a call."""

    node: int
    shape: Shape


@dataclass(frozen=True)
class Call:
    """One call of a torch function while a network ran."""

    name: str  # of the function, without underscores: "add" for add_ and __iadd__ too
    args: Sequence[Any]  # `Tracked` where a tensor depends on the image
    kwargs: Mapping[str, Any]
    sources: tuple[Tracked, ...]
    shape: Shape  # of the result
    where: str  # the module, for errors

    def named(self, *names: str, **defaults: Any) -> dict[str, Any]:
        """The arguments by name."""
        return defaults | dict(zip(names, self.args, strict=False)) | dict(self.kwargs)

    def constant(self) -> tuple[Any, bool]:
        """The operand that does not depend on the image, None if both do; whether it is second."""
        first, second = self.args[:2]
        if isinstance(first, Tracked) and isinstance(second, Tracked):
            return None, True
        return (second, True) if isinstance(first, Tracked) else (first, False)

    def refusal(self, what: str) -> CapabilityError:
        """The error for something that no certificate covers."""
        return CapabilityError(
            f"expected layers that certificates cover, got {what} in {self.where}: see "
            "rood.certify.layers for those that they cover"
        )


class Pulled(NamedTuple):
    """A linear function of a layer's output, as one of its inputs and a number."""

    inputs: tuple[Tensor, ...]  # coefficients, (m, ...) each
    offset: Tensor  # (m,)
    slack: Tensor  # (m,): how far rounding may have moved the function, over the box


class PulledWindow(NamedTuple):
    """As `Pulled`, of a layer with one input, in windows of its map."""

    window: Window
    offset: Tensor
    slack: Tensor


class Relaxation(ABC):
    """Two linear functions around a layer over the boxes of a batch."""

    @abstractmethod
    def pull(self, a: Tensor, owner: Tensor) -> Pulled:
        """From coefficients a of the output, (m, ...), to a lower bound of a.output.

        owner: the image of each row.
        """

    def pull_window(self, window: Window, owner: Tensor) -> PulledWindow | None:
        """As `pull`, for coefficients in windows; None where the layer needs the whole map."""
        return None


class Operation(ABC):
    """One operation of a network."""

    names: ClassVar[tuple[str, ...]]  # of the torch functions that it stands for
    affine: ClassVar[bool] = False  # whether it is its own relaxation

    @classmethod
    @abstractmethod
    def read(cls, call: Call) -> "Operation | None":
        """From a call; None where it gives its input back."""

    @abstractmethod
    def value(self, *x: Tensor) -> Tensor:
        """The output."""

    @abstractmethod
    def over(self, *boxes: Box) -> Box:
        """A box of outputs for boxes of inputs."""

    @abstractmethod
    def relaxed(self, *boxes: Box) -> Relaxation:
        """Linear functions around the output, over boxes of inputs."""

    def loose(self, box: Box) -> Tensor:
        """Where tighter bounds of its input would tighten its relaxation."""
        return box.high > box.low


class Affine(Operation):
    """y = L x + b: its relaxation is exact.

    Over a box with centre c and radius r, y lies within L c + b -+ |L| r: each entry of y is a sum
    of L_ij x_j, and x_j moves it by at most |L_ij| r_j. Pulled back, a.y = (L'a).x + a.b.
    """

    affine: ClassVar[bool] = True
    mixing: ClassVar[bool] = True  # whether an output reads several inputs

    @abstractmethod
    def linear(self, *x: Tensor) -> Tensor:
        """L x."""

    @abstractmethod
    def adjoint(self, a: Tensor) -> tuple[Tensor, ...]:
        """L'a, for each input."""

    def adjoint_window(self, window: Window) -> Window | None:
        """L'a in windows; None where it needs the whole map."""
        return None

    @abstractmethod
    def mapped(self, f: Callable[[Tensor], Tensor]) -> "Affine":
        """The layer whose matrix has the entries f(L_ij); f(0) = 0."""

    @property
    @abstractmethod
    def terms(self) -> int:
        """How many products a sum has at most."""

    def followed(self, factor: Tensor, shift: Tensor) -> "Affine | None":
        """The layer with a factor and a number for each channel behind it; None: two layers."""
        return None

    def bias(self) -> Tensor | None:
        """b, in a shape that goes with (b, ...)."""
        return None

    @final
    def value(self, *x: Tensor) -> Tensor:
        y, bias = self.linear(*x), self.bias()
        return y if bias is None else y + bias

    def over(self, *boxes: Box) -> Box:
        relative = rounding(self.terms, boxes[0].low)
        middle = self.value(*(b.centre for b in boxes))
        reach = self.mapped(torch.abs).linear(*(b.radius + relative * b.size for b in boxes))
        if (bias := self.bias()) is not None:
            reach = reach + relative * bias.abs()
        return Box(middle - reach, middle + reach)

    def relaxed(self, *boxes: Box) -> "Exact":
        size = self.mapped(torch.abs).linear(*(b.size for b in boxes))
        if (bias := self.bias()) is not None:
            size = size + bias.abs()
        return Exact(self, size)


@dataclass(frozen=True)
class Exact(Relaxation):
    """An affine layer as its own relaxation."""

    layer: Affine
    size: Tensor  # (b, ...): |L| |x| + |b| at most

    def pull(self, a: Tensor, owner: Tensor) -> Pulled:
        relative = rounding(self.layer.terms + a[0].numel(), a)
        slack = relative * dot(a.abs(), self.size, owner)
        bias, none = self.layer.bias(), torch.zeros_like(slack)
        offset = none if bias is None else dot(a, bias.expand_as(self.size[:1]), owner)
        return Pulled(self.layer.adjoint(a), offset, slack)

    def pull_window(self, window: Window, owner: Tensor) -> PulledWindow | None:
        if (moved := self.layer.adjoint_window(window)) is None:
            return None
        relative = rounding(self.layer.terms + window.a[0].numel(), window.a)
        slack = relative * window.at_most(self.size, owner)
        bias, offset = self.layer.bias(), torch.zeros_like(slack)
        if bias is not None:
            flat = bias.shape[2:] == (1, 1)
            under = bias.flatten() if flat else window.under(bias, torch.zeros_like(owner))
            offset = (window.a * under).flatten(1).sum(dim=1)
        return PulledWindow(moved, offset, slack)


class Rearranging(Affine):
    """An affine layer whose outputs are inputs, or constants: nothing is computed or rounded."""

    mixing: ClassVar[bool] = False

    def mapped(self, f: Callable[[Tensor], Tensor]) -> "Affine":
        return self

    @property
    def terms(self) -> int:
        return 0

    @final
    def over(self, *boxes: Box) -> Box:
        return Box(self.value(*(b.low for b in boxes)), self.value(*(b.high for b in boxes)))


class Lines(NamedTuple):
    """Lines below and above a function of one variable: slope times x plus offset."""

    low_slope: Tensor
    low_offset: Tensor
    high_slope: Tensor
    high_offset: Tensor


class Elementwise(Operation):
    """y = f(x) in each entry, between two lines over [l, u]."""

    @abstractmethod
    def lines(self, box: Box) -> Lines:
        """Lines that hold on the whole interval, in exact arithmetic."""

    def relaxed(self, *boxes: Box) -> "Between":
        (box,) = boxes
        return Between(self.lines(box), box.size)

    def freedom(self, box: Box) -> Box | None:
        """The slopes that a line through the origin below f may have; None where it has none."""
        return None


@dataclass(frozen=True)
class Between(Relaxation):
    r"""a.f(x) >= a+ . (lower line) + a- . (upper line), a+ and a- the positive and negative part.

    A positive coefficient needs a lower bound of its entry, a negative one an upper bound.
    """

    lines: Lines
    size: Tensor  # of x

    def pull(self, a: Tensor, owner: Tensor) -> Pulled:
        low_slope, low_offset, high_slope, high_offset = (pick(v, owner) for v in self.lines)
        up, down = a.clamp(min=0), a.clamp(max=0)
        offset = (up * low_offset + down * high_offset).flatten(1).sum(dim=1)
        relative = rounding(a[0].numel(), a)
        steep = torch.maximum(self.lines.low_slope.abs(), self.lines.high_slope.abs())
        far = torch.maximum(self.lines.low_offset.abs(), self.lines.high_offset.abs())
        slack = relative * dot(a.abs(), steep * self.size + far, owner)
        return Pulled((up * low_slope + down * high_slope,), offset, slack)

    def pull_window(self, window: Window, owner: Tensor) -> PulledWindow:
        low_slope, low_offset, high_slope, high_offset = window.under(
            torch.cat(self.lines, dim=1), owner
        ).chunk(4, dim=3)
        up = window.a > 0
        offset = (window.a * torch.where(up, low_offset, high_offset)).flatten(1).sum(dim=1)
        steep = torch.maximum(self.lines.low_slope.abs(), self.lines.high_slope.abs())
        far = torch.maximum(self.lines.low_offset.abs(), self.lines.high_offset.abs())
        relative = rounding(window.a[0].numel(), window.a)
        slack = relative * window.at_most(steep * self.size + far, owner)
        a = window.a * torch.where(up, low_slope, high_slope)
        return PulledWindow(window._replace(a=a), offset, slack)

    def steered(self, slopes: Tensor) -> "Between":
        """With other slopes of the lower lines, which go through the origin where they differ."""
        same = slopes == self.lines.low_slope
        offset = torch.where(same, self.lines.low_offset, torch.zeros_like(slopes))
        return Between(self.lines._replace(low_slope=slopes, low_offset=offset), self.size)


def pick(v: Tensor, owner: Tensor) -> Tensor:
    """The row of `v` for each owner; a single row stands for all."""
    return v if len(v) == 1 else v[owner]


def dot(a: Tensor, v: Tensor, owner: Tensor) -> Tensor:
    """The inner product of each row of `a` with the row of `v` of its owner."""
    a, v = a.reshape(len(a), -1), v.reshape(len(v), -1)
    return a @ v[0] if len(v) == 1 else (a * v[owner]).sum(dim=1)
