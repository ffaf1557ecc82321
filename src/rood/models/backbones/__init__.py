"""Architectures, one a file; `registry` finds them by file name, `create` fills in the weights."""

from typing import Any

import torch

from rood.errors import InputError
from rood.models.backbones.base import Backbone
from rood.registry import Registry
from rood.seeds import generator

registry: Registry[Backbone] = Registry(__name__, Backbone)

__all__ = ["Backbone", "create", "registry"]


def create(
    name: str, *, classes: int, channels: int = 3, seed: int = 0, **settings: Any
) -> Backbone:
    """The network called `name` with first weights that depend on the seed alone."""
    architecture = registry.get(name)
    with torch.device("meta"):  # draws nothing from the global generator
        try:
            net = architecture(classes=classes, channels=channels, **settings)
        except TypeError as e:
            raise InputError(f"{name} cannot be built with {settings}: {e}") from e
    net.to_empty(device="cpu")
    net.initialise(generator(seed, "weights", name))
    return net


def __getattr__(name: str) -> type[Backbone]:
    return registry.by_class_name(name)
