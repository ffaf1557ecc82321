"""Training objectives, one per file; `registry` finds them by file name."""

from rood.registry import Registry
from rood.training.objectives.base import Batch, Objective

registry: Registry[Objective] = Registry(__name__, Objective, beside=("robust",))

__all__ = ["Batch", "Objective", "registry"]

__getattr__, __dir__ = registry.by_class_name, registry.public_names
