"""Attacked images beside their originals, as pictures inside the page."""

import base64
import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

from rood.evaluation.store import Array, Contents, Examples
from rood.report.numbers import Numbers, eps_of, in_row_order
from rood.report.words import shown

MOST_GROUPS = 16
PER_GROUP = 3
MOST_PIXELS = 160  # wider images are made smaller
MOST_BYTES = 1_200_000  # of all pictures together
FACTORS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class Triple:
    """One attacked image: three pictures (as data URIs) and two scores."""

    original: str
    change: str
    attacked: str
    before: float
    after: float
    fate: str  # what the deployed threshold makes of it


@dataclass(frozen=True)
class Group:
    """Examples of one detector, one image set and one attack."""

    title: str
    aim: str
    factor: int
    pictures: list[Triple]


def groups(folder: Contents, numbers: Numbers) -> list[Group]:
    """The strongest attack of every detector first, as many as the page has room for."""
    room = MOST_BYTES
    found: list[Group] = []
    for examples in _ordered(folder.examples, numbers)[:MOST_GROUPS]:
        group = _group(examples, numbers.threshold(*examples.origin[:2]))
        room -= sum(len(p.original) + len(p.change) + len(p.attacked) for p in group.pictures)
        if room < 0 and found:
            break
        if group.pictures:
            found.append(group)
    return found


def _ordered(examples: tuple[Examples, ...], numbers: Numbers) -> list[Examples]:
    """Strongest first, and one of every network, detector and direction before a second of any."""
    models = in_row_order(numbers.rows, "model", (e.origin.model for e in examples))
    detectors = in_row_order(numbers.rows, "detector", (e.origin.detector for e in examples))
    at = lambda e: (detectors.index(e.origin.detector), models.index(e.origin.model))
    turn: dict[tuple[str, str, str], int] = {}
    ranked = []
    for example in sorted(examples, key=lambda e: -eps_of(e.origin.condition)):
        key = (example.origin.model, example.origin.detector, example.direction)
        turn[key] = turn.get(key, -1) + 1
        ranked.append(((turn[key], at(example), example.direction), example))
    return [example for _, example in sorted(ranked, key=lambda pair: pair[0])]


def _group(examples: Examples, threshold: float | None) -> Group:
    origin = examples.origin
    original = np.nan_to_num(examples.original[:PER_GROUP])
    attacked = np.nan_to_num(examples.attacked[:PER_GROUP])
    change = attacked - original
    biggest = float(np.abs(change).max(initial=0.0))
    factor = max((f for f in FACTORS if f * biggest <= 0.5 + 1e-4), default=1)
    pictures = [
        Triple(
            _uri(original[i]),
            _uri(0.5 + factor * change[i]),
            _uri(attacked[i]),
            float(examples.before[i]),
            float(examples.after[i]),
            _fate(float(examples.before[i]), float(examples.after[i]), threshold),
        )
        for i in range(len(original))
    ]
    aims = {
        "look_in": "OOD images made to look ID",
        "look_out": "ID images made to look OOD",
    }
    title = f"{shown(origin.detector)} on {shown(origin.model)}"
    aim = aims.get(examples.direction, shown(examples.direction))
    return Group(
        title, f"{shown(origin.dataset)}: {aim}, {shown(origin.condition)}", factor, pictures
    )


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
