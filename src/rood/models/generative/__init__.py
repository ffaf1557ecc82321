"""Networks that learn how images look, one a file; `registry` finds them by file name."""

from rood.models.generative.base import Generative
from rood.registry import Registry

registry: Registry[Generative] = Registry(__name__, Generative)

__all__ = ["Generative", "registry"]
