"""Packages whose modules are attributes before they are imported: `rood.training.objectives`."""

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from types import ModuleType


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
