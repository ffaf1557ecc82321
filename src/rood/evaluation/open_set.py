"""Some of the user's own classes held out as the OOD set: semantic shift without other images.

What the outputs of the network then mean depends on its training:

    outputs               the network                          what is done
    all classes           has learnt those held out, too       their rows of the head are left out
    the other classes     has never seen those held out        the labels are renumbered

In the first case it is a stand-in for the second, as the features have learnt the held-out classes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch

from rood.data.base import ImageSet
from rood.errors import InputError
from rood.evaluation.rows import OPEN_SET
from rood.models.model import Model
from rood.registry import unknown

LEAST = 2  # classes that are left


@dataclass(frozen=True)
class OpenSet:
    """Which classes are known and which are held out, as numbers of the labels given."""

    known: tuple[int, ...]  # in the order of the network's outputs, ascending
    held_out: tuple[int, ...]
    names: tuple[str, ...] = ()  # of all classes, by number; empty if unknown

    @classmethod
    def of(cls, asked: Sequence[object], parts: Iterable[ImageSet]) -> "OpenSet":
        """The classes asked for, by name or number, among those of all ID images."""
        parts = list(parts)
        for images in parts:
            if not (images.label_numbers() >= 0).all():
                raise InputError(
                    "expected a label for every ID image to hold classes out, got none for some of "
                    f"{images.name!r}: put them in one folder per class, or give (images, labels)"
                )
        y = np.concatenate([images.label_numbers() for images in parts])
        names = next((images.classes for images in parts if images.classes), ())
        count = max(len(names), int(y.max()) + 1)
        held_out = tuple(sorted({_number(one, names, count) for one in asked}))
        known = tuple(i for i in range(count) if i not in held_out)
        if len(known) < LEAST:
            raise InputError(
                f"expected at least {LEAST} classes that are not held out, got {len(held_out)} of "
                f"{count} held out: hold fewer out"
            )
        if missing := [i for i in held_out if i not in y]:
            raise InputError(
                f"expected images of class {missing[0]} to hold it out, got none: hold another out"
            )
        return cls(known, held_out, names)

    @property
    def classes(self) -> tuple[int, ...]:
        """The number given of each new label: the known classes first, then those held out."""
        return *self.known, *self.held_out

    def name(self, label: int) -> str:
        """What a new label is called."""
        number = self.classes[label]
        return self.names[number] if number < len(self.names) else str(number)

    def inside(self, images: ImageSet) -> ImageSet:
        """The images of known classes, labels as the network's outputs."""
        return self._part(images, range(len(self.known)), "")

    def outside(self, images: ImageSet) -> ImageSet:
        """The images of the classes held out."""
        found = self._part(images, range(len(self.known), len(self.classes)), f"/{OPEN_SET}")
        if not len(found):
            raise InputError(
                f"expected test images of the classes held out, got none in {images.name!r}: give "
                "more images"
            )
        return found

    def _part(self, images: ImageSet, labels: range, suffix: str) -> ImageSet:
        new = {number: label for label, number in enumerate(self.classes)}
        y = torch.tensor([new[i] for i in images.label_numbers().tolist()])
        mine = (y >= labels.start) & (y < labels.stop)
        # the numbers of those held out begin behind the outputs, so that no output means them
        named = tuple(self.name(i) for i in range(labels.stop)) if self.names else ()
        name = f"{images.name}{suffix}"
        return replace(images.take(mine), labels=y[mine], classes=named, name=name)

    def network(self, model: Model, name: str, images: ImageSet) -> tuple[Model, str]:
        """The network with an output for each known class, and a sentence on its training."""
        every, k = len(self.classes), model.classes
        held_out = ", ".join(map(self.name, range(len(self.known), every)))
        if k == len(self.known):
            return model, f"has no output for the classes held out ({held_out})"
        if k < every:
            raise InputError(
                f"expected {name} to have {every} outputs, or {len(self.known)} without the "
                f"classes held out, got {k}: give the network of these classes"
            )
        few = images.take(torch.arange(min(2, len(images)))).pixels().to(model.mean)
        return model.only(self.known, few), (
            f"has outputs for the classes held out ({held_out}), which are left out; if it was "
            f"trained on them, its features know them and numbers of {OPEN_SET} are probably "
            "better than for classes that it has never seen"
        )

    def about(self) -> Mapping[str, object]:
        """For the manifest."""
        return {"known": list(self.known), "held_out": list(self.held_out)}


def _number(asked: object, names: Sequence[str], count: int) -> int:
    """A class by its name, else by its number."""
    if isinstance(asked, bool) or not isinstance(asked, Integral | str):
        raise InputError(f"expected names or numbers of classes to hold out, got {asked!r:.50}")
    if asked in names:
        return list(names).index(str(asked))
    text = str(asked)
    if text.isdecimal() and int(text) < count:
        return int(text)
    if names:
        raise unknown("class to hold out", text, names)
    raise InputError(
        f"expected numbers of classes from 0 to {count - 1} to hold out, got {text!r:.50}"
    )


class Held(NamedTuple):
    """What an audit sees where classes are held out; all as it was where none are."""

    open_set: OpenSet | None
    parts: dict[str, ImageSet]
    outside: dict[str, ImageSet]


def hold_out(
    asked: Sequence[object], parts: dict[str, ImageSet], outside: dict[str, ImageSet]
) -> Held:
    """The parts of the ID images without the classes, and the OOD sets with those of the tests."""
    if not asked:
        return Held(None, parts, outside)
    if OPEN_SET in outside:
        raise InputError(f"expected another name for the out-of-distribution set {OPEN_SET!r}")
    found = OpenSet.of(asked, parts.values())
    held_out = {OPEN_SET: found.outside(parts["test"])}
    return Held(found, {n: found.inside(x) for n, x in parts.items()}, held_out | outside)


def known_outputs(
    open_set: OpenSet | None, name: str, model: Model, card: Mapping[str, Any], images: ImageSet
) -> tuple[Model, dict[str, Any]]:
    """The network with an output for each known class, and a card that says so."""
    if open_set is None:
        return model, dict(card)
    made, sentence = open_set.network(model, name, images)
    names = list(card.get("classes", ()))
    kept = [names[i] for i in open_set.known] if made is not model and names else names
    return made, {**card, "classes": kept, "notes": [*card.get("notes", ()), sentence]}
