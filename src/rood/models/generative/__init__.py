"""Generative networks, one per file; `registry` finds them by file name."""

from rood.models.generative.base import Generative
from rood.registry import Registry

registry: Registry[Generative] = Registry(
    __name__, Generative, beside=("dcgan", "mixtures", "sgld")
)

__all__ = ["Generative", "registry"]
