"""Attacked images beside their originals, as pictures inside the page."""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from rood.evaluation.store import Array, Contents, Examples
from rood.report.numbers import Numbers, eps_of, in_row_order, in_words
from rood.report.outcomes import outcomes
from rood.report.tables import many, part
from rood.report.words import shown

MOST_GROUPS = 16
UNFOLDED = 2  # groups
SHOWN = 4  # pictures of a group that are not folded
MOST_PIXELS = 160  # wider images are made smaller
MOST_BYTES = 1_200_000  # of all pictures together
FACTORS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
RESISTS = "resists most"
AIMS = {"look_in": "OOD images made to look ID", "look_out": "ID images made to look OOD"}


@dataclass(frozen=True)
class Triple:
    """One attacked image: three pictures (as data URIs) and two scores."""

    original: str
    change: str
    attacked: str
    before: float
    after: float
    fate: str  # what the deployed threshold makes of it
    why: str  # why it is shown


@dataclass(frozen=True)
class Group:
    """Examples of one detector, one image set and one attack."""

    title: str
    aim: str
    factor: int
    pictures: list[Triple]


def groups(folder: Contents, numbers: Numbers) -> list[Group]:
    """The strongest attack on the best detector of every network first, then the others."""
    room = MOST_BYTES
    found: list[Group] = []
    first = _best(numbers)
    names = _names(folder.manifest or {})
    for examples in _ordered(folder.examples, numbers, first)[:MOST_GROUPS]:
        group = _group(examples, numbers.threshold(*examples.origin[:2]), names)
        room -= sum(len(p.original) + len(p.change) + len(p.attacked) for p in group.pictures)
        if room < 0 and found:
            break
        if group.pictures:
            found.append(group)
    return found


def _best(numbers: Numbers) -> set[tuple[str, str]]:
    """The detector of each network that an attack leaves the most."""
    best = set()
    for model in numbers.models:
        found = [o for family in numbers.families for o in outcomes(numbers, model, family)][-1:]
        best |= {(o.attacked.model, o.attacked.detector) for o in found}
    return best


def _names(manifest: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The names of the classes of every image set that has some."""
    data = part(manifest, "data")
    return {name: many(part(data, name), "classes") for name in data}


def _ordered(
    examples: tuple[Examples, ...], numbers: Numbers, first: set[tuple[str, str]]
) -> list[Examples]:
    """Strongest first, and one of every network, detector and direction before a second of any."""
    models = in_row_order(numbers.rows, "model", (e.origin.model for e in examples))
    detectors = in_row_order(numbers.rows, "detector", (e.origin.detector for e in examples))
    at = lambda e: (detectors.index(e.origin.detector), models.index(e.origin.model))
    turn: dict[tuple[str, str, str], int] = {}
    ranked = []
    for example in sorted(examples, key=lambda e: -eps_of(e.origin.condition)):
        key = (example.origin.model, example.origin.detector, example.direction)
        turn[key] = turn.get(key, -1) + 1
        later = example.origin[:2] not in first
        ranked.append(((turn[key], later, example.direction, at(example)), example))
    return [example for _, example in sorted(ranked, key=lambda pair: pair[0])]


def _words(examples: Examples) -> tuple[str, str]:
    origin = examples.origin
    aim = AIMS.get(examples.direction, shown(examples.direction))
    title = f"{shown(origin.detector)} on {shown(origin.model)}"
    return title, f"{shown(origin.dataset)}: {aim}, {in_words(origin.condition)}"


def _group(examples: Examples, threshold: float | None, names: Mapping[str, list[Any]]) -> Group:
    original, attacked = np.nan_to_num(examples.original), np.nan_to_num(examples.attacked)
    change = attacked - original
    biggest = float(np.abs(change).max(initial=0.0))
    factor = max((f for f in FACTORS if f * biggest <= 0.5 + 1e-4), default=1)
    pictures = []
    for i, why in _telling(examples, names.get(examples.origin.dataset, [])):
        before, after = float(examples.before[i]), float(examples.after[i])
        three = (_uri(original[i]), _uri(0.5 + factor * change[i]), _uri(attacked[i]))
        fate = _fate(before, after, threshold)
        if why == RESISTS and fate.startswith("still"):
            why = "still resists"
        pictures.append(Triple(*three, before, after, fate, why))
    return Group(*_words(examples), factor, pictures)


def _telling(examples: Examples, classes: list[Any]) -> list[tuple[int, str]]:
    """The largest change and the image that resists most, then one of each class."""
    up = 1 if examples.direction == "look_out" else -1
    gain = np.nan_to_num(up * (examples.after - examples.before))
    goal = np.nan_to_num(up * examples.after)
    if not len(gain):
        return []
    labels = examples.labels if examples.labels is not None else np.full(len(gain), -1.0)
    told = {int(np.argmax(gain)): "largest change"}
    told.setdefault(int(np.argmin(goal)), RESISTS)
    seen = {label for i, label in enumerate(labels) if i in told and label >= 0}
    for i, label in enumerate(map(int, labels)):
        if label < 0 or label not in seen:
            told.setdefault(i, _class(label, classes))
            seen.add(label)
    return list(told.items())


def _class(label: int, classes: list[Any]) -> str:
    if label < 0:
        return "another image"
    return f"class {shown(classes[label], 24) if label < len(classes) else label}"


def _fate(before: float, after: float, threshold: float | None) -> str:
    if threshold is None:
        return "no threshold is known"
    was, now = ("accepted" if score <= threshold else "rejected" for score in (before, after))
    return f"still {now}" if was == now else f"was {was}, now {now}"


def _uri(image: Array) -> str:
    pixels = np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8)
    if len(pixels) == 1:
        picture = Image.fromarray(pixels[0])
    else:
        # two channels cannot be shown as they are: the missing ones stay black
        three = np.zeros((3, *pixels.shape[1:]), np.uint8)
        three[: min(3, len(pixels))] = pixels[:3]
        picture = Image.fromarray(np.ascontiguousarray(three.transpose(1, 2, 0)))
    if max(picture.size) > MOST_PIXELS:
        picture.thumbnail((MOST_PIXELS, MOST_PIXELS))
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
