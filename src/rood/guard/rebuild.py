"""A detector as JSON and back: registered classes by name, checked arguments, and nothing else."""

import inspect
from collections.abc import Sequence
from typing import Any

from torch import nn

from rood import config, detectors
from rood._moved import without_removed
from rood.detectors.base import Detector
from rood.errors import CapabilityError, CheckpointError, RoodError
from rood.models.model import Model

Tree = dict[str, Any]  # what JSON can hold
PLAIN = (str, int, float, bool, type(None))


def networks_of(detector: Detector) -> list[Model]:
    """Every network inside, once, the detector's own first; one inside another does not count."""
    found: list[Model] = []

    def look(module: nn.Module) -> None:
        if isinstance(module, Model):
            if not any(module is m for m in found):
                found.append(module)
            return
        for child in module.children():
            look(child)

    look(detector.model)
    look(detector)
    return found


def described(detector: Detector, networks: Sequence[Model]) -> Tree:
    """Its class and every argument of the constructor; networks by their place."""
    cls = type(detector)
    if _registered(cls.__name__) is not cls:
        raise CapabilityError(
            f"expected a detector of rood.detectors in a guard, got {cls.__name__}, which could "
            "not be loaded again"
        )
    tree: Tree = {"class": cls.__name__}
    for p in _parameters(cls):
        tree[p.name] = _plain(getattr(detector, p.name), networks, f"{cls.__name__}.{p.name}")
    return tree


def rebuilt(tree: Any, networks: Sequence[Model]) -> Detector:
    """The detector that `described` wrote down, not fitted."""
    name = tree.get("class") if isinstance(tree, dict) else None
    if not isinstance(name, str) or (cls := _registered(name)) is None:
        raise CheckpointError(f"expected the class of a detector of rood, got {name!r}")
    parameters = _parameters(cls)
    tree = without_removed(tree)
    if wrong := (set(tree) - {"class"}) ^ {p.name for p in parameters}:
        raise CheckpointError(
            f"the arguments of {name} differ in {', '.join(sorted(wrong))}: "
            "fit the guard again with this version of rood"
        )
    values = {p.name: _revived(tree[p.name], networks) for p in parameters}
    places = [values.pop(p.name) for p in parameters if p.kind is not p.KEYWORD_ONLY]
    if not all(map(_are_parts, places)) or any(map(_are_parts, values.values())):
        raise CheckpointError(f"expected networks or detectors inside {name}, got something else")
    try:
        return cls(*places, **config.arguments(cls, values, name))
    except (RoodError, TypeError, ValueError, AttributeError) as e:
        raise CheckpointError(f"{name} cannot be built: {e}") from e


def _parameters(cls: type[Detector]) -> list[inspect.Parameter]:
    _, *parameters = inspect.signature(cls.__init__).parameters.values()  # but self
    return parameters


def _registered(name: str) -> type[Detector] | None:
    try:
        return detectors.registry.by_class_name(name)
    except AttributeError:
        return None


def _plain(value: Any, networks: Sequence[Model], where: str) -> Any:
    if isinstance(value, Model):
        return {"network": next(i for i, m in enumerate(networks) if m is value)}
    if isinstance(value, Detector):
        return described(value, networks)
    if isinstance(value, nn.ModuleList | tuple | list):
        return [_plain(v, networks, where) for v in value]
    if not isinstance(value, PLAIN):
        raise CapabilityError(
            f"expected what JSON can hold for {where}, got {type(value).__name__}: "
            "such a detector cannot be saved in a guard"
        )
    return value


def _revived(value: Any, networks: Sequence[Model]) -> Any:
    if isinstance(value, list):
        return tuple(_revived(v, networks) for v in value)
    if not isinstance(value, dict):
        return value
    if "class" in value:
        return rebuilt(value, networks)
    place = value.get("network")
    if type(place) is not int or not 0 <= place < len(networks):
        raise CheckpointError(f"expected one of {len(networks)} networks, got {place!r}")
    return networks[place]


def _are_parts(value: Any) -> bool:
    many = value if isinstance(value, tuple) else (value,)
    return bool(many) and all(isinstance(v, Model | Detector) for v in many)
