"""Attacks, one per file; `registry` finds them by file name, `rood.attacks.PGD` by class."""

from rood.attacks.base import Attack, Goal
from rood.registry import Registry

registry: Registry[Attack] = Registry(__name__, Attack)

__all__ = ["Attack", "Goal", "registry"]


def __getattr__(name: str) -> type[Attack]:
    return registry.by_class_name(name)


def __dir__() -> list[str]:
    return registry.public_names()
