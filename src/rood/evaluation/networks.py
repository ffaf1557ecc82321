"""The networks of an audit, all for images of one shape."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rood import data
from rood.data.base import ImageSet, Shape
from rood.errors import InputError
from rood.evaluation.unit import accuracy
from rood.models.load import find_network, has_card, is_function, load_network
from rood.models.model import Model
from rood.models.sources.base import ForeignNetwork

CHANCE_IMAGES = 200  # on which accuracy is looked at before anything is attacked
NEAR = 0.1  # of the way from chance to perfect: what is still called near chance


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Networks as they were asked for."""

    specs: tuple[str, ...]
    inside: str  # in-distribution images, which tell the shape where no network does
    weights: str | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    size: str | None = None  # of the images: "32" or "32x48"

    def load(self) -> tuple[dict[str, tuple[Model, dict[str, Any]]], Shape]:
        """Each network with its card, by a short name, and the shape of the images for all."""
        if len(set(self.specs)) > 1 and (self.weights or self.mean or self.std):
            raise InputError(
                f"expected one network beside --weights, --mean and --std, got {len(self.specs)}"
            )
        given = {"weights": self.weights, "mean": self.mean or None, "std": self.std or None}
        found: dict[str, tuple[Model, dict[str, Any]] | ForeignNetwork] = {}
        for spec in self.specs:
            find: Any = load_network if has_card(spec) else find_network
            found[_short_name(spec, self.specs)] = find(spec, **given)
        shape = self._shape(found)
        built = {
            n: f.build(shape) if isinstance(f, ForeignNetwork) else f for n, f in found.items()
        }
        return built, shape

    def _shape(self, found: Mapping[str, tuple[Model, dict[str, Any]] | ForeignNetwork]) -> Shape:
        own = {
            n: _three(f[1]["shape"]) for n, f in found.items() if not isinstance(f, ForeignNetwork)
        }
        others = {n: f.shape for n, f in found.items() if isinstance(f, ForeignNetwork) and f.shape}
        size = None if self.size is None else _size(self.size)
        # networks of rood take one size; those that know their own resize what else they get
        stated = own or ({} if size else others)
        if len(set(stated.values())) > 1:
            hint = "" if own else ": say which with --size, and each resizes to its own"
            raise InputError(f"expected networks that take images of one shape, got {stated}{hint}")
        if own and size and size != next(iter(own.values()))[1:]:
            raise InputError(f"expected no --size beside networks of rood, which take {stated}")
        if stated:
            return next(iter(stated.values()))
        c, *own_size = next(iter(others.values()), None) or data.load(self.inside, limit=1).shape
        h, w = size or own_size
        return c, h, w


def near_chance(model: Model, images: ImageSet, name: str, batch_size: int) -> tuple[str, ...]:
    """A note where a network knows hardly more than a die about images that it should know."""
    right, n = accuracy(model, images.thin(CHANCE_IMAGES), batch_size)
    chance = 1 / model.classes
    if n == 0 or right > chance + NEAR * (1 - chance):
        return ()
    return (
        f"{name}: accuracy {right:.3f} on {n} labelled images is near chance, {chance:.3f}: "
        "wrong mean/std or class order?",
    )


def _short_name(spec: str, others: tuple[str, ...]) -> str:
    """The last part of a name or path, as long as only one network is called so."""
    alike = [n for n in others if _last(n) == _last(spec)]
    return spec if len(set(alike)) > 1 else _last(spec)


def _last(spec: str) -> str:
    kind, colon, rest = spec.partition(":")
    if colon and kind in ("hf", "timm"):
        return rest.rstrip("/").rpartition("/")[2]
    return spec if is_function(spec) else Path(spec).stem


def _size(text: str) -> tuple[int, int]:
    if not (match := re.fullmatch(r"([1-9]\d*)(?:x([1-9]\d*))?", text)):
        raise InputError(f"expected a size such as 32 or 32x48 (height x width), got {text!r}")
    return int(match[1]), int(match[2] or match[1])


def _three(shape: Any) -> Shape:
    c, h, w = shape
    return int(c), int(h), int(w)
