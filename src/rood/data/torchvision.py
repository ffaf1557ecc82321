"""Data sets of torchvision."""

import importlib
import inspect
import io
from typing import Any

from PIL import Image

from rood._offline import offline
from rood.data._paths import expanded
from rood.data._query import divided
from rood.data._reading import Reading
from rood.data.base import ImageSet, Shape, Source, spaced
from rood.errors import CapabilityError, DataError, InputError
from rood.registry import unknown


class Torchvision(Source):
    """NAME?root=FOLDER&train=false: torchvision.datasets.NAME(root, train=False).

    What follows root goes to its constructor: train, split, ... It is downloaded to root where it
    is not there yet, unless rood is offline. Needs torchvision.
    """

    def load(
        self,
        argument: str,
        *,
        shape: Shape | None = None,
        limit: int | None = None,
        skip_bad: bool = False,
    ) -> ImageSet:
        reading = Reading(shape)
        name, options = divided(argument)
        found = _opened(name, dict(options))
        places = spaced(len(found), limit)
        for i in places:
            where = f"image {i} of {name}"
            try:
                image, label = _item(found, i, where)
            except _UnreadableError as e:
                reading.leave_out(e, skip_bad, f"{i:08d}")
                continue
            reading.add(image, label, skip_bad, name=f"{i:08d}", where=where)
        labelled = any(label >= 0 for label in reading.labels)
        note = f"used {len(places)} of {len(found)} images, evenly spaced"
        return reading.image_set(
            name,
            repr(name),
            labelled=labelled,
            classes=map(str, getattr(found, "classes", None) or ()),
            notes=[note] if len(places) < len(found) else [],
        )


def _opened(name: str, options: dict[str, str]) -> Any:
    try:
        known = vars(importlib.import_module("torchvision.datasets"))
    except Exception as e:  # beside another build of torch it fails in many ways
        raise CapabilityError(
            f"needs torchvision, which does not import here ({type(e).__name__}): install the one "
            "made for this torch, or save the images as a folder or an .npz file"
        ) from e
    classes: dict[str, Any] = {n: v for n, v in known.items() if inspect.isclass(v)}
    if name not in classes:
        raise unknown("data set of torchvision", name, classes)
    make = classes[name]
    if "root" not in options:
        raise InputError(f"expected {name}?root=FOLDER, where its files are or shall be")
    root = str(expanded(options.pop("root")))
    words: dict[str, Any] = {
        k: {"true": True, "false": False}.get(v, v) for k, v in options.items()
    }
    if "download" in inspect.signature(make).parameters:
        words = {"download": not offline()} | words
    try:
        return make(root, **words)
    except (OSError, RuntimeError, TypeError, ValueError) as e:
        reason = " ".join(str(e).split())[:200]
        raise DataError(f"torchvision cannot open {name} in {root!r}: {reason}") from e


class _UnreadableError(DataError):
    """One image of the set is damaged; the others may be well."""


def _item(found: Any, i: int, where: str) -> tuple[bytes, int]:
    """An image and its label, -1 where it has none."""
    try:
        image, label = found[i][:2]
        if isinstance(image, Image.Image):
            image.load()  # some are opened and no more
    except Exception as e:  # its own code, and decoders raise anything
        reason = " ".join(str(e).split())[:200] or type(e).__name__
        raise _UnreadableError(f"{where} cannot be read: {reason.rstrip('.')}") from e
    return _png(image, where), label if isinstance(label, int) else -1


def _png(image: Any, where: str) -> bytes:
    """As a file without loss, so that every picture goes through the same decoder."""
    if not isinstance(image, Image.Image):
        raise DataError(f"expected a picture at {where}, got {type(image).__name__}")
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()
