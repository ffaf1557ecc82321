"""What there is: every registered detector, attack, objective, image source and network, as rows.

The terminal's `rood list`, the README's tables and the page all read this one description.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rood.registry import paper


@dataclass(frozen=True)
class Entry:
    """One line of a list."""

    name: str
    about: str  # the formula, or one sentence
    gradient: str = ""
    cost: str = ""  # forward and backward passes for one score
    paper: str = ""


def detectors() -> Iterator[Entry]:
    """Every detector, with formula, gradient kind, cost and paper."""
    from torch import nn

    from rood.detectors import registry
    from rood.models.wrap import wrap

    # any small network will do to ask what a detector costs with its defaults
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    model = wrap(net)
    for name in registry.names():
        make = registry.get(name)
        detector = make.example(model) if hasattr(make, "example") else make(model)
        forwards, backwards = detector.cost()
        cost = f"{forwards} forward" + (f", {backwards} backward" if backwards else "")
        doc = inspect.getdoc(type(detector)) or ""
        yield Entry(name, doc.splitlines()[0], detector.gradient, cost, paper(type(detector)))


def attacks() -> Iterator[Entry]:
    """Every attack."""
    from rood.attacks import registry

    yield from _described(registry.names(), registry.get)


def objectives() -> Iterator[Entry]:
    """Every training objective."""
    from rood.training.objectives import registry

    yield from _described(registry.names(), registry.get)


def data() -> Iterator[Entry]:
    """Every kind of image source."""
    from rood.data import registry

    yield from _described(registry.names(), registry.get)


def models() -> Iterator[Entry]:
    """Every network that ships with rood."""
    from rood.models import zoo

    for name in zoo.names():
        card = zoo.card(name)
        yield Entry(name, str(card.get("about", card.get("backbone", ""))))


KINDS: dict[str, Callable[[], Iterator[Entry]]] = {
    "detectors": detectors,
    "attacks": attacks,
    "objectives": objectives,
    "data": data,
    "models": models,
}


def _described(names: list[str], get: Callable[[str], Any]) -> Iterator[Entry]:
    for name in names:
        doc = inspect.getdoc(get(name)) or ""
        yield Entry(name, doc.splitlines()[0] if doc else "", paper=paper(get(name)))
