"""Attacks, one per file; `registry` finds them by file name, `rood.attacks.PGD` by class."""

from rood.attacks.base import Attack, Goal
from rood.registry import Registry

registry: Registry[Attack] = Registry(__name__, Attack)

__all__ = ["Attack", "Goal", "registry"]

__getattr__, __dir__ = registry.by_class_name, registry.public_names
