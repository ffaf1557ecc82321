"""Imports that wait: modules of a package, as `rood.training.objectives`, and optional packages."""

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from rood.errors import CapabilityError


def submodules(
    package: str, path: Iterable[str]
) -> tuple[Callable[[str], ModuleType], Callable[[], list[str]]]:
    """A package's `__getattr__`, which imports its public modules when used, and `__dir__`."""
    names = [m.name for m in pkgutil.iter_modules(path) if not m.name.startswith("_")]

    def get(name: str) -> ModuleType:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return importlib.import_module(f"{package}.{name}")

    return get, lambda: names


def optional(module: str, extra: str) -> Any:
    """A module of another package, which the extra of rood installs."""
    try:
        return importlib.import_module(module)
    except ImportError as e:
        package = module.partition(".")[0]
        raise CapabilityError(f"needs {package}: pip install 'rood[{extra}]'") from e
