"""Shared by the checks: building, comparing, and detecting side effects."""

import copy
import functools
import inspect
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import jaxtyping
import numpy as np
import torch
from torch import Tensor, nn

from rood.detectors.base import Detector
from rood.errors import InputError, RoodError
from rood.testing.world import World

DetectorFactory: TypeAlias = Callable[..., Detector]  # what `registry.get(name)` gives
DetectorCheck: TypeAlias = Callable[[DetectorFactory, World], None]


def require(condition: object, message: str) -> None:
    """An assertion that `python -O` does not remove."""
    if not condition:
        raise AssertionError(message)


def class_of(factory: Callable[..., Any]) -> type[Any]:
    """The class behind a class, its named constructor, or a partial of either."""
    while isinstance(factory, functools.partial):
        factory = factory.func
    cls = factory if inspect.isclass(factory) else getattr(factory, "__self__", None)
    if not inspect.isclass(cls):
        raise InputError(f"expected a class or one of its class methods to check, got {factory!r}")
    return cls


def example(factory: Callable[..., Any]) -> Callable[..., Any]:
    """The constructor to use: the class's `example`, if it has one."""
    return getattr(factory, "example", factory) if inspect.isclass(factory) else factory


def build(factory: DetectorFactory, world: World, *, fit: bool = True) -> Detector:
    """The detector on a copy of the world's model, in eval mode."""
    detector: Detector = example(factory)(copy.deepcopy(world.model)).eval()
    return detector.fit(world.train) if fit else detector


def scores(detector: Detector, x: Tensor) -> Tensor:
    """The scores, without gradient."""
    with torch.no_grad():
        return detector.score(x)


def require_close(got: Tensor, want: Tensor, tolerance: float, message: str) -> None:
    """Equal up to `tolerance` times the value plus the standard deviation of the scores."""
    require(got.shape == want.shape, f"{message}: shape {tuple(got.shape)}, {tuple(want.shape)}")
    spread = float(want.std()) if len(want) > 1 else 0.0
    off = (got - want).abs() - tolerance * (want.abs() + spread)
    worst = int(off.argmax())
    require(
        bool((off <= 0).all()),
        f"{message}: {got[worst].item():.9g} and {want[worst].item():.9g} for image {worst}",
    )


@contextmanager
def as_in_production() -> Iterator[None]:
    """Disable run-time shape checks, which would raise before rood's own errors."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


def require_error(error: type[RoodError], call: Callable[[], object], what: str) -> None:
    """Require that the call raises `error`."""
    with as_in_production():
        try:
            call()
        except error:
            return
        except Exception as e:
            raise AssertionError(
                f"{what}: expected {error.__name__}, got {type(e).__name__}: {e}"
            ) from e
    raise AssertionError(f"{what}: expected {error.__name__}, but it was accepted")


@contextmanager
def no_trace(call: str, *modules: nn.Module, **tensors: Tensor) -> Iterator[None]:
    """Require that the block changes no module, tensor or global RNG state."""
    with as_in_production():  # beartype uses Python's global RNG
        before = _snapshot(modules, tensors)
        yield
        after = _snapshot(modules, tensors)
    for (what, was), now in zip(before.items(), after.values(), strict=True):
        require(_equal(was, now), f"{call} changed {what}")


def _snapshot(modules: Iterable[nn.Module], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    state: dict[str, Any] = {
        "the global random state of torch": torch.get_rng_state(),
        "the global random state of numpy": str(np.random.get_state(legacy=False)),
        "the global random state of Python": random.getstate(),
    }
    for name, tensor in tensors.items():
        state[name] = tensor.detach().clone()
        state[f"{name}.requires_grad"] = tensor.requires_grad
        state[f"{name}.grad"] = None if tensor.grad is None else tensor.grad.clone()
    for module in modules:
        state |= _inside(module)
    return state


def _inside(module: nn.Module) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for name, layer in module.named_modules():
        state[f"the mode of {name or 'it'}"] = layer.training
        hooks = (len(layer._forward_hooks), len(layer._backward_hooks))
        state[f"the hooks of {name or 'it'}"] = hooks
    for name, p in module.named_parameters():
        state[f"requires_grad of {name}"] = p.requires_grad
        state[f"the gradient of {name}"] = None if p.grad is None else p.grad.clone()
    return state | {name: value.clone() for name, value in module.state_dict().items()}


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and bool(torch.equal(a, b))
    return type(a) is type(b) and not isinstance(a, Tensor) and bool(a == b)
