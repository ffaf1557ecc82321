"""Data sets of torchvision."""

import importlib
import inspect
from typing import Any

from PIL import Image

from rood._files import expanded
from rood._offline import offline
from rood.data._reading import Reading, as_png
from rood.data._spec import query
from rood.data.base import ImageSet, LoadOptions, Source, limit_note, spaced
from rood.errors import CapabilityError, DataError, InputError
from rood.registry import unknown


class Torchvision(Source):
    """NAME?root=FOLDER&train=false: torchvision.datasets.NAME(root, train=False).

    Further options, such as train and split, are passed to the constructor. The data set is
    downloaded to root if missing, unless rood is offline. Needs torchvision.
    """

    def read(self, argument: str, options: LoadOptions) -> ImageSet:
        reading = Reading(options)
        name, chosen = query(argument)
        found = _opened(name, chosen)
        places = spaced(len(found), options.limit)
        for i in places:
            where = f"image {i} of {name}"
            try:
                image, label = _item(found, i, where)
            except _UnreadableError as e:
                reading.skip(e, f"{i:08d}")
                continue
            reading.add(image, label, name=f"{i:08d}", where=where)
        return reading.image_set(
            name,
            repr(name),
            classes=map(str, getattr(found, "classes", None) or ()),
            notes=limit_note(len(places), len(found)),
        )


def _opened(name: str, options: dict[str, str]) -> Any:
    try:
        known = vars(importlib.import_module("torchvision.datasets"))
    except Exception as e:  # with a mismatched torch it fails in many ways
        raise CapabilityError(
            f"needs torchvision, which does not import here ({type(e).__name__}): install the "
            "version for this torch, or save the images as a folder or an .npz file"
        ) from e
    classes: dict[str, Any] = {n: v for n, v in known.items() if inspect.isclass(v)}
    if name not in classes:
        raise unknown("data set of torchvision", name, classes)
    make = classes[name]
    if "root" not in options:
        raise InputError(f"expected {name}?root=FOLDER, the folder of its files, got no root")
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
    """One image of the set is damaged; the others may be readable."""


def _item(found: Any, i: int, where: str) -> tuple[bytes, int]:
    """An image as PNG and its label, -1 if it has none."""
    try:
        image, label = found[i][:2]
        if isinstance(image, Image.Image):
            image.load()  # some are opened lazily
    except Exception as e:  # third-party code and decoders may raise anything
        reason = " ".join(str(e).split())[:200] or type(e).__name__
        raise _UnreadableError(f"{where} cannot be read: {reason.rstrip('.')}") from e
    if not isinstance(image, Image.Image):
        raise DataError(f"expected an image at {where}, got {type(image).__name__}")
    return as_png(image), label if isinstance(label, int) else -1
