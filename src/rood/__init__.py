"""rood: robust out-of-distribution detection. Attack OOD detectors, harden them, ship them.

Importing this is light: torch is loaded when a name is first used. `dir(rood)` lists the API.
"""

import importlib
from typing import Any

from rood import _moved
from rood.version import __version__

# what is offered, and where it is; `make generate` writes __init__.pyi from it for editors
_CLASSES_AND_FUNCTIONS = {
    "Guard": "rood.guard.guard",
    "ImageSet": "rood.data",
    "Results": "rood.evaluation.store",
    "audit": "rood.api",
    "wrap": "rood.models.wrap",
}
_MODULES = {
    "analysis": "rood.analysis",
    "attacks": "rood.attacks",
    "certify": "rood.certify",
    "corruptions": "rood.corruptions",
    "data": "rood.data",
    "detectors": "rood.detectors",
    "goals": "rood.goals",
    "interop": "rood.interop",
    "metrics": "rood.metrics",
    "models": "rood.models",
    "testing": "rood.testing",
    "threat": "rood.threat",
    "training": "rood.training",
    "tuning": "rood.tuning",
    "zoo": "rood.models.zoo",
}

__all__ = ["__version__", *_CLASSES_AND_FUNCTIONS, *_MODULES]

_moved.install()


def __getattr__(name: str) -> Any:
    if name in _CLASSES_AND_FUNCTIONS:
        return getattr(importlib.import_module(_CLASSES_AND_FUNCTIONS[name]), name)
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if _moved.new_path(f"rood.{name}"):
        return _moved.module(f"rood.{name}")
    raise AttributeError(f"module 'rood' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
