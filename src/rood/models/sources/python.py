"""A network returned by a function of a Python module."""

import importlib
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from rood.errors import CapabilityError, InputError, RoodError, first_line
from rood.models.checkpoint import check_fit, load_state
from rood.models.model import Model
from rood.models.sources.base import ForeignNetwork

PREFIXES = ("module.", "model.", "net.", "_orig_mod.")  # that wrappers such as DataParallel add


def find(spec: str, weights: str | Path | None, trust: bool) -> ForeignNetwork:
    """The network that package.module:function() returns, with the weights of a file.

    Whoever names a function says by that that it may run: `trust` changes nothing.
    """
    made = _made(spec)
    if isinstance(made, Model):
        net: nn.Module = made.net
        mean, std = (v.flatten().tolist() for v in (made.mean, made.std))
        given: dict[str, Any] = {"mean": mean, "std": std}
    elif isinstance(made, nn.Module):
        net, given = made, {}
    else:
        raise InputError(f"expected an nn.Module from {spec!r}, got {type(made).__name__}")
    if weights is not None:
        fill(net, weights)
    elif not isinstance(made, Model):
        given["notes"] = ("no --weights were given: it has the weights that its function set",)
    return ForeignNetwork(net=net, name=spec, **given)


def fill(net: nn.Module, weights: str | Path) -> None:
    """Load tensors into a network, without the prefixes that wrappers add to every name."""
    state = load_state(weights)
    wanted = net.state_dict()
    while state and set(state) != set(wanted):
        prefix = next((p for p in PREFIXES if all(k.startswith(p) for k in state)), None)
        if prefix is None:
            break
        state = {k.removeprefix(prefix): v for k, v in state.items()}
    check_fit(
        _used(wanted),
        _used(state),
        weights,
        name_hint="is it for another network?",
        shape_hint="is it for another network or number of classes?",
    )
    net.load_state_dict(state, strict=False)


def _used(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    # old files lack the batch counters, which evaluation does not use
    return {k: v for k, v in tensors.items() if not k.endswith("num_batches_tracked")}


def _made(spec: str) -> object:
    module_name, _, function_name = spec.partition(":")
    with _here_too():
        try:
            module = importlib.import_module(module_name)
        except ImportError as e:
            hint = ": run this in its folder; hubs are hf:NAME and timm:NAME"
            do = hint if e.name == module_name else ""
            raise CapabilityError(f"cannot import {module_name!r} of {spec!r}: {e}{do}") from e
        except Exception as e:
            raise _theirs(f"to import {module_name!r} of {spec!r}", e) from e
    function = getattr(module, function_name, None)
    if not callable(function):
        known = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise InputError(
            f"expected a function {function_name!r} in {module_name!r}, "
            f"found {', '.join(sorted(known)[:8]) or 'none'}"
        )
    try:
        return function()
    except RoodError:
        raise
    except Exception as e:
        if isinstance(e, TypeError) and e.__traceback__ and e.__traceback__.tb_next is None:
            raise InputError(f"expected {spec!r} to need no arguments, got: {e}") from e
        raise _theirs(f"{spec!r} to make a network", e) from e


def _theirs(what: str, e: Exception) -> InputError:
    """Code of somebody else raises anything: say where."""
    place = traceback.extract_tb(e.__traceback__)[-1]
    got = f"{type(e).__name__}: {first_line(e)[:200]}"
    return InputError(f"expected {what}, got {got} in line {place.lineno} of {place.filename}")


@contextmanager
def _here_too() -> Iterator[None]:
    """Add the working directory to sys.path, which an installed command lacks."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)
