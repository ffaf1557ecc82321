"""Architectures, one per file; `registry` finds them by file name, `create` initialises them."""

from collections.abc import Callable
from typing import Any

import torch

from rood.errors import InputError
from rood.models.backbones.base import Backbone
from rood.registry import Registry
from rood.seeds import generator

registry: Registry[Backbone] = Registry(__name__, Backbone)

__all__ = ["Backbone", "create", "find", "registry"]

__getattr__ = registry.by_class_name


def find(name: str) -> Callable[..., Backbone]:
    """The architecture called `name`, of a classifier or of a generative network."""
    from rood.models import generative  # which imports this package

    known = generative.registry if name in generative.registry.files else registry
    return known.get(name)


def outline(
    name: str, *, classes: int, channels: int = 3, scored: bool = False, **settings: Any
) -> Backbone:
    """The network called `name` on torch's device "meta": shapes that take no memory."""
    architecture = find(name)
    with torch.device("meta"):  # does not use the global RNG
        try:
            net = architecture(classes=classes, channels=channels, **settings)
        except TypeError as e:
            raise InputError(f"{name} cannot be built with {settings}: {e}") from e
        if scored:
            net.add_score()
    return net


def create(
    name: str,
    *,
    classes: int,
    channels: int = 3,
    seed: int = 0,
    scored: bool = False,
    **settings: Any,
) -> Backbone:
    """The network called `name`, with initial weights that depend on the seed only.

    scored: with a scalar head beside the classes, which `joint` and `certified_head` train.
    """
    net = outline(name, classes=classes, channels=channels, scored=scored, **settings)
    net.to_empty(device="cpu")
    net.initialise(generator(seed, "weights", name))
    return net
