"""Guards: a classifier and a calibrated detector that accept or reject images."""

import importlib
from typing import Any

__all__ = ["Guard", "Monitor"]
_WHERE = {"Guard": "rood.guard.guard", "Monitor": "rood.guard.monitor"}


def __getattr__(name: str) -> Any:
    """Import when used: torch comes along."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return __all__
