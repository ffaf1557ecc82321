"""The layers that certificates cover, one per file, each with the derivation of its bounds."""

from functools import cache

from rood.certify.layers.base import Operation
from rood.registry import Registry

registry: Registry[Operation] = Registry(__name__, Operation)

__all__ = ["Operation", "by_name", "registry"]

__getattr__ = registry.by_class_name


@cache
def by_name() -> dict[str, type[Operation]]:
    """The layer that stands for each torch function."""
    return {name: cls for cls in map(registry.cls, registry.files) for name in cls.names}
