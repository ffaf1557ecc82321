"""BPDA: straight-through gradients where autograd has none.

An operation that is flat or not differentiable (a rounding, a comparison, `.detach()`) keeps its
value and gets the gradient of what it approximates, most often the identity: the backward pass
differentiable approximation of Athalye, Carlini & Wagner, *Obfuscated Gradients Give a False Sense
of Security*, ICML 2018, arXiv:1802.00420. Model and detector stay as they are: a torch function
mode intercepts every operation. An autograd.Function with a backward pass of its own, and a
computation outside torch (NumPy, Pillow), are taken for the identity where shapes allow it. The
gradient is approximate, so such a goal is one more to climb; gains are measured on the true goal.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_any, tree_map

from rood.attacks.base import AnyGoal, Goal, as_goal, in_expectation, own_backward_passes
from rood.errors import CapabilityError
from rood.shapes import Images, Scores

Operation = Callable[..., Any]

CUTS, DATA = {"detach", "detach_"}, Tensor.data.__get__  # type: ignore[attr-defined]
FLAT = {
    *("round", "floor", "ceil", "trunc", "fix", "sign", "sgn", "heaviside"),
    *("clamp", "clip", "clamp_min", "clamp_max"),
}
# networks consist of these: straight-through only where they act on one number per image
SQUASHES = {"relu", "relu6", "hardtanh", "threshold", "hardsigmoid", "sigmoid", "tanh"}
SOFTMAXES = {"softmax", "log_softmax"}  # saturated where one logit leads by far: shrink its lead
# secants in place of tangents, over a share of the spread of their arguments, if that is periods
WAVES, SPAN, PERIODS = {"sin", "cos", "tan", "frac", "fmod", "remainder"}, 0.05, 3.0
COMPARISONS = {"gt": 1, "ge": 1, "lt": -1, "le": -1}
CASTS = {"to", "type", "bool", "byte", "char", "short", "int", "long"}
INNER = {"grad": "create_graph", "backward": "retain_graph"}
LEAVES = {"numpy", "__array__", "tolist"}  # torch, with a whole tensor
EXITS = {*LEAVES, "item", "__float__", "__int__", "__bool__"}


def straight_through(goal: AnyGoal) -> Goal:
    """The goal with straight-through gradients; CapabilityError where it cannot be computed so."""
    goal = as_goal(goal)
    if goal.single is not None:  # each draw by itself: their mean has a gradient of its own
        return in_expectation(replace(straight_through(goal.single), rows=goal.rows))

    def function(x: Images) -> Scores:
        return _evaluated(goal.function, x) if x.requires_grad else goal(x)

    rows = goal.rows
    part = None if rows is None else lambda index: straight_through(rows(index))
    return replace(goal, function=function, variants=(), aim=None, rows=part)


def among_fixed_images(goal: AnyGoal, company: Images, places: Tensor | None = None) -> Goal:
    """Each image by itself in a batch of fixed other images, for a score that depends on its batch.

    The sum of scores that are normalised over a batch is constant, so that its gradient is 0, and
    scores of two batches cannot be compared. Costs 1 + len(company) times as much. `company` are
    the first of the goal's images; those attacked are at `places` of it, or all in order if None.
    """
    goal = as_goal(goal)
    first = torch.arange(len(company), device=company.device)

    def function(x: Images) -> Scores:
        here = torch.arange(len(x), device=x.device) if places is None else places
        values = [
            goal.take(torch.cat([at[None], first]))(torch.cat([one[None], company]))[0]
            for at, one in zip(here, x, strict=True)
        ]
        return torch.stack(values)

    def rows(index: Tensor) -> Goal:
        return among_fixed_images(goal, company, index if places is None else places[index])

    return replace(
        goal,
        function=function,
        variants=tuple(among_fixed_images(v, company, places) for v in goal.variants),
        rows=None if goal.rows is None else rows,
    )


def _evaluated(function: Callable[[Images], Scores], x: Images) -> Scores:
    copy = x.clone()  # it may be written to; x, a leaf, may not
    mode = _StraightThrough(copy)
    try:
        with mode:
            values = function(copy)
        for node in own_backward_passes(values):
            node.register_hook(_identity)
        (gradient,) = torch.autograd.grad(values.sum(), x)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a score may run any code, which may fail on such tensors
        raise CapabilityError(
            "expected a score that can be computed with straight-through gradients, "
            f"got {error!r}: use an attack without gradients"
        ) from error
    finally:
        while mode.written:  # a buffer must not keep this graph
            mode.written.pop().detach_()
    carried: Scores = _Carried.apply(values.detach(), (gradient * x).flatten(1).sum(dim=1), mode)
    return carried


def _identity(inputs: Any, outputs: Any) -> Any:
    """The gradients of a Function's inputs as those of its outputs, where their shapes agree."""
    given = [g for g in outputs if g is not None]
    alike = lambda g: next((o for o in given if g is None or o.shape == g.shape), g)
    return tuple(map(alike, inputs))


class _StraightThrough(TorchFunctionMode):
    """While active, operations on a batch of images have straight-through gradients.

    Booleans and integers cannot carry a gradient: an attribute `soft` holds the same number as a
    float, until an operation turns them into floats. Once a tensor has left torch, one of the
    shape of the images that comes back without a gradient is taken for them.
    """

    def __init__(self, x: Images) -> None:
        super().__init__()
        self.images, self.x = len(x), x
        self.has_left = False  # torch, and may come back
        self.differentiating = False  # the score itself is
        self.written: list[Tensor] = []  # no part of the graph until it was written to

    def __torch_function__(
        self, func: Operation, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        with torch.inference_mode(False), torch.enable_grad():
            if name in INNER:
                return self._inner(func, args, kwargs | {INNER[name]: True})
            if args and isinstance(args[0], Tensor):
                return self._on_tensor(func, name, args, kwargs)
            return self._softly(func, args, kwargs)

    def _inner(self, func: Operation, args: Any, kwargs: Any) -> Any:
        """A gradient that the score itself computes stays the true one."""
        self.differentiating = True
        try:
            return func(*args, **kwargs)
        finally:
            self.differentiating = False

    def _on_tensor(self, func: Operation, name: str, args: Any, kwargs: Any) -> Any:
        first = args[0]
        if name in EXITS:
            self.has_left |= name in LEAVES
            return func(first.detach(), *args[1:], **kwargs)
        if self.has_left and self._is_back(first):
            first, args = (back := self._joined(first, self.x)), (back, *args[1:])
        if name == "register_hook":
            return _NoHandle()
        carries = first.requires_grad or _is_soft(first)
        if carries and (func == DATA or name in CUTS):
            return first
        if name == "requires_grad_" and first.grad_fn is not None:
            first.retain_grad()  # once a leaf, whose .grad was there to be read
            return first
        carrier = self._carrier(func, name.removesuffix("_"), args, kwargs)
        if carrier is None or not carrier.requires_grad:
            value = self._softly(func, args, kwargs)
            if first.requires_grad and not carries:
                self.written.append(first if first._base is None else first._base)
            return value
        if name.endswith("_"):
            value = func(first.clone(), *args[1:], **kwargs)
            return first.copy_(_Carried.apply(value, first.clone(), self))
        return self._joined(func(*args, **kwargs), carrier)

    def _is_back(self, value: Tensor) -> bool:
        alike = value.shape == self.x.shape and value.dtype == self.x.dtype
        return alike and not value.requires_grad and not self.differentiating

    def _carrier(self, func: Operation, name: str, args: Any, kwargs: Any) -> Tensor | None:
        """What is differentiated in place of a flat operation; None for any other operation."""
        first, *others = args
        if name in FLAT or (name in SQUASHES and first.numel() == self.images):
            return first
        if name in COMPARISONS and others:
            return COMPARISONS[name] * (_soft(first) - _soft(others[0]))
        if name in CASTS:
            value = func(*args, **kwargs)
            whole = isinstance(value, Tensor) and not value.is_floating_point()
            return _soft(first) if whole else None
        if name in WAVES and first.is_floating_point():
            h = SPAN * first.detach().std(correction=0)
            return _secant(func, h, args, kwargs) if h > PERIODS else None
        if name in SOFTMAXES and first.ndim == 2:
            spread = first.detach().amax(dim=1, keepdim=True) - first.detach().mean(1, keepdim=True)
            return func(first / spread.clamp_min(1), *others, **kwargs)
        return None

    def _softly(self, func: Operation, args: Any, kwargs: Any) -> Any:
        """The operation, with the gradients of its boolean and integer arguments."""
        value = func(*args, **kwargs)
        if not isinstance(value, Tensor) or not tree_any(_is_soft, (args, kwargs)):
            return value
        try:
            softly = _between if func is torch.where else func
            approximate = softly(*tree_map(_soft, args), **tree_map(_soft, kwargs))
        except (RuntimeError, TypeError, IndexError):  # an index, a mask: no float will do
            return value
        if approximate.requires_grad and approximate.shape == value.shape:
            return self._joined(value, approximate)
        return value

    def _joined(self, value: Tensor, carrier: Tensor) -> Tensor:
        """The value with the gradient of the carrier; what is no float gets it as `soft`."""
        if not value.is_floating_point():
            value.soft = self._joined(value.to(carrier.dtype), carrier)  # type: ignore[attr-defined]
            return value
        joined: Tensor = _Carried.apply(value, carrier, self)
        return joined


def _secant(func: Operation, h: Tensor, args: Any, kwargs: Any) -> Tensor:
    """A line with the slope of a function of each entry over a span, not at a point."""
    first, *others = args
    z = first.detach()
    slope = (func(z + h, *others, **kwargs) - func(z - h, *others, **kwargs)) / (2 * h)
    return slope.nan_to_num(0, 0, 0) * first


class _NoHandle:
    """What is left of a hook that was not registered."""

    def remove(self) -> None: ...


def _between(share: Tensor, yes: Any, no: Any) -> Any:
    if any(isinstance(v, Tensor) and v.requires_grad for v in (yes, no)):
        raise TypeError("expected values without a gradient to choose between")
    return share * yes + (1 - share) * no


def _is_soft(value: object) -> bool:
    return isinstance(value, Tensor) and hasattr(value, "soft")


def _soft(value: Any) -> Any:
    return getattr(value, "soft", value) if isinstance(value, Tensor) else value


class _Carried(torch.autograd.Function):
    """The value of one tensor with the gradient of another."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, carrier: Tensor, mode: _StraightThrough) -> Tensor:
        ctx.mode = mode
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return (gradient, None, None) if ctx.mode.differentiating else (None, gradient, None)
