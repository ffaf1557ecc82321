"""The same number with the gradient let through where it was cut.

A step of a score that is flat or cut off from the pixels (a rounding, a comparison, `.detach()`)
keeps its value and gets the gradient of what it approximates, most often the identity: the backward
pass differentiable approximation of Athalye, Carlini & Wagner, *Obfuscated Gradients Give a False
Sense of Security*, ICML 2018, arXiv:1802.00420. No line of the model or detector changes: a mode of
torch sees every operation. What leaves torch (NumPy) stays cut. Such a gradient is a guess, so an
uncut goal is a further goal to climb; only the true one says what was gained.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_any, tree_map

from rood.attacks.base import AnyGoal, Goal, as_goal
from rood.errors import CapabilityError
from rood.shapes import Images, Scores

Operation = Callable[..., Any]

CUTS, DATA = {"detach", "detach_"}, Tensor.data.__get__  # type: ignore[attr-defined]
FLAT = {
    *("round", "floor", "ceil", "trunc", "fix", "sign", "sgn", "heaviside"),
    *("clamp", "clip", "clamp_min", "clamp_max"),
}
# networks are made of these: they are let through only where they act on one number an image
SQUASHES = {"relu", "relu6", "hardtanh", "threshold", "hardsigmoid", "sigmoid", "tanh"}
SOFTMAXES = {"softmax", "log_softmax"}  # dead where one logit leads by far: shrink its lead
COMPARISONS = {"gt": 1, "ge": 1, "lt": -1, "le": -1}
CASTS = {"to", "type", "bool", "byte", "char", "short", "int", "long"}
INNER = {"grad": "create_graph", "backward": "retain_graph"}
EXITS = {"numpy", "__array__", "item", "tolist", "__float__", "__int__", "__bool__"}


def uncut(goal: AnyGoal) -> Goal:
    """The same values; a gradient also where the goal has none. CapabilityError if it cannot be."""
    goal = as_goal(goal)

    def function(x: Images) -> Scores:
        return _let_through(goal.function, x) if x.requires_grad else goal(x)

    rows = goal.rows
    part = None if rows is None else lambda index: uncut(rows(index))
    return replace(goal, function=function, variants=(), aim=None, rows=part)


def in_company(goal: AnyGoal, company: Images, places: Tensor | None = None) -> Goal:
    """Each image by itself among fixed others, for a score that depends on its batch.

    Of scores normalised over a batch the sum is constant, which leaves nothing to climb, and two
    batches cannot be compared. Costs 1 + len(company) times as much. The company are the first of
    the goal's images; those attacked are at `places` among them, all in their order if None.
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
        return in_company(goal, company, index if places is None else places[index])

    return replace(
        goal,
        function=function,
        variants=tuple(in_company(v, company, places) for v in goal.variants),
        rows=None if goal.rows is None else rows,
    )


def _let_through(function: Callable[[Images], Scores], x: Images) -> Scores:
    mode = _Uncut(len(x))
    try:
        with mode:
            values = function(x.clone())  # a copy may be written to; x, a leaf, may not
        (gradient,) = torch.autograd.grad(values.sum(), x)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a score may do anything, and now does it on other terms
        raise CapabilityError(
            f"expected a score that computes with its gradient let through, got {error!r}: "
            "use an attack without gradients"
        ) from error
    finally:
        while mode.written:  # a buffer must not keep this graph
            mode.written.pop().detach_()
    carried: Scores = _Carried.apply(values.detach(), (gradient * x).flatten(1).sum(dim=1), mode)
    return carried


class _Uncut(TorchFunctionMode):
    """While it is on, operations on a batch of `images` images let every gradient through.

    Truth values and whole numbers cannot carry a gradient: theirs travels in an attribute, `soft`,
    the same number as a float, until an operation makes a float of them.
    """

    def __init__(self, images: int) -> None:
        super().__init__()
        self.images = images
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
        """A gradient that is part of the score is the true one."""
        self.differentiating = True
        try:
            return func(*args, **kwargs)
        finally:
            self.differentiating = False

    def _on_tensor(self, func: Operation, name: str, args: Any, kwargs: Any) -> Any:
        first = args[0]
        if name in EXITS:
            return func(first.detach(), *args[1:], **kwargs)
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

    def _carrier(self, func: Operation, name: str, args: Any, kwargs: Any) -> Tensor | None:
        """What is differentiated in place of an operation that is flat; None where it is not."""
        first, *others = args
        if name in FLAT or (name in SQUASHES and first.numel() == self.images):
            return first
        if name in COMPARISONS and others:
            return COMPARISONS[name] * (_soft(first) - _soft(others[0]))
        if name in CASTS:
            value = func(*args, **kwargs)
            whole = isinstance(value, Tensor) and not value.is_floating_point()
            return _soft(first) if whole else None
        if name in SOFTMAXES and first.ndim == 2:
            spread = first.detach().amax(dim=1, keepdim=True) - first.detach().mean(1, keepdim=True)
            return func(first / spread.clamp_min(1), *others, **kwargs)
        return None

    def _softly(self, func: Operation, args: Any, kwargs: Any) -> Any:
        """The operation, with the gradient of those arguments that are no floats."""
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


def _between(share: Tensor, yes: Any, no: Any) -> Any:
    if any(isinstance(v, Tensor) and v.requires_grad for v in (yes, no)):
        raise TypeError("what is chosen has a gradient of its own")
    return share * yes + (1 - share) * no


def _is_soft(value: object) -> bool:
    return isinstance(value, Tensor) and hasattr(value, "soft")


def _soft(value: Any) -> Any:
    return getattr(value, "soft", value) if isinstance(value, Tensor) else value


class _Carried(torch.autograd.Function):
    """One tensor by value, another by gradient."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, carrier: Tensor, mode: _Uncut) -> Tensor:
        ctx.mode = mode
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return (gradient, None, None) if ctx.mode.differentiating else (None, gradient, None)
