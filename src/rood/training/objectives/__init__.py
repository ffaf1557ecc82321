"""Training objectives, one per file; `registry` finds them by file name."""

from rood.registry import Registry
from rood.training.objectives.base import Batch, Objective

registry: Registry[Objective] = Registry(__name__, Objective, beside=("robust",))

__all__ = ["Batch", "Objective", "registry"]


def __getattr__(name: str) -> type[Objective]:
    return registry.by_class_name(name)


def __dir__() -> list[str]:
    return registry.public_names()
