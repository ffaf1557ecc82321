"""What the checks share: to build, to compare, to look for traces."""

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
    """An assertion that `python -O` keeps."""
    if not condition:
        raise AssertionError(message)


def class_of(factory: Callable[..., Any]) -> type[Any]:
    """The class that a factory makes: a class, its named constructor, or a partial of either."""
    while isinstance(factory, functools.partial):
        factory = factory.func
    cls = factory if inspect.isclass(factory) else getattr(factory, "__self__", None)
    if not inspect.isclass(cls):
        raise InputError(f"expected a class or one of its class methods to check, got {factory!r}")
    return cls


def example(factory: Callable[..., Any]) -> Callable[..., Any]:
    """How to make one: a class that needs more than its defaults, or less, has an `example`."""
    return getattr(factory, "example", factory) if inspect.isclass(factory) else factory


def build(factory: DetectorFactory, world: World, *, fit: bool = True) -> Detector:
    """The detector on a copy of the world's model, in eval mode."""
    detector: Detector = example(factory)(copy.deepcopy(world.model)).eval()
    return detector.fit(world.train) if fit else detector


def scores(detector: Detector, x: Tensor) -> Tensor:
    """Its score, without gradient."""
    with torch.no_grad():
        return detector.score(x)


def require_close(got: Tensor, want: Tensor, tolerance: float, message: str) -> None:
    """Equal up to `tolerance` of each number and of the scores' spread."""
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
    """Without run-time shape checks, whose error would come before the one a user sees."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


def require_error(error: type[RoodError], call: Callable[[], object], what: str) -> None:
    """The call must end in `error`, whose message must be a sentence of ours."""
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
    """Everything that the block must leave as it was, or `call` has changed it."""
    with as_in_production():  # beartype draws from Python's global random state
        before = _look(modules, tensors)
        yield
        after = _look(modules, tensors)
    for (what, was), now in zip(before.items(), after.values(), strict=True):
        require(_equal(was, now), f"{call} changed {what}")


def _look(modules: Iterable[nn.Module], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    look: dict[str, Any] = {
        "the global random state of torch": torch.get_rng_state(),
        "the global random state of numpy": str(np.random.get_state(legacy=False)),
        "the global random state of Python": random.getstate(),
    }
    for name, tensor in tensors.items():
        look[name] = tensor.detach().clone()
        look[f"{name}.requires_grad"] = tensor.requires_grad
        look[f"{name}.grad"] = None if tensor.grad is None else tensor.grad.clone()
    for module in modules:
        look |= _inside(module)
    return look


def _inside(module: nn.Module) -> dict[str, Any]:
    look: dict[str, Any] = {}
    for name, layer in module.named_modules():
        look[f"the mode of {name or 'it'}"] = layer.training
        hooks = (len(layer._forward_hooks), len(layer._backward_hooks))
        look[f"the hooks of {name or 'it'}"] = hooks
    for name, p in module.named_parameters():
        look[f"requires_grad of {name}"] = p.requires_grad
        look[f"the gradient of {name}"] = None if p.grad is None else p.grad.clone()
    return look | {name: value.clone() for name, value in module.state_dict().items()}


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and bool(torch.equal(a, b))
    return type(a) is type(b) and not isinstance(a, Tensor) and bool(a == b)
