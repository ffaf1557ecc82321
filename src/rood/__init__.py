"""rood: robust out-of-distribution detection. Attack OOD detectors, harden them, ship them.

Importing this is light: torch is loaded when a name is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from rood.version import __version__

if TYPE_CHECKING:
    from rood.api import audit as audit
    from rood.guard.guard import Guard as Guard
    from rood.models import zoo as zoo
    from rood.models.wrap import wrap as wrap

_HOMES = {
    "Guard": ("rood.guard.guard", "Guard"),
    "audit": ("rood.api", "audit"),
    "wrap": ("rood.models.wrap", "wrap"),
    "zoo": ("rood.models.zoo", None),
}

__all__ = ["Guard", "__version__", "audit", "wrap", "zoo"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rood' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    found = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found
