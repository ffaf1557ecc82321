"""Masked defences: detectors that only seem robust, with the truth known by construction.

Each hides a detector, most often the margin of the demo network, behind a false gradient, noise,
memory or a step that autograd cannot follow. `python -m benchmarks.masks` audits them.
"""

import hashlib
from types import ModuleType

from benchmarks.masks import backward, layers, logits, memory, noise, preprocessing, terrain
from benchmarks.masks.base import Mask

__all__ = ["FIRST", "HELD_OUT", "MASKS", "Mask", "digest", "tuned_on"]


def _of(module: ModuleType) -> dict[str, type[Mask]]:
    found = (c for c in vars(module).values() if isinstance(c, type) and issubclass(c, Mask))
    own = (c for c in found if c.__module__ == module.__name__ and c.__name__[0] != "_")
    return {c.label(): c for c in own}


FAMILIES = (logits, backward, layers, preprocessing, terrain, noise, memory)
MASKS: dict[str, type[Mask]] = {n: c for family in FAMILIES for n, c in _of(family).items()}

# In the tests of the attacks before there was a gallery, so that attacks were tuned on them.
FIRST = ("saturated", "sign_cut", "quantised", "noise_layer", "thermometer", "boxed",
         "batch_normalised")  # fmt: skip

# Not run while attacks and checks are tuned: the eight others with the smallest SHA-256.
HELD_OUT = (
    "numpy_knn",
    "stairs",
    "dropout",
    "tensor_hook",
    "score_ripple",
    "wrong_backward",
    "zero_backward",
    "grad_mode_switch",
)


def digest(name: str) -> str:
    """SHA-256 of a mask's name, by which the held-out masks are chosen."""
    return hashlib.sha256(name.encode()).hexdigest()


def tuned_on() -> list[str]:
    """The masks on which attacks and checks may be tuned."""
    return [name for name in MASKS if name not in HELD_OUT]
