"""Data sets of the Hugging Face hub, or of a folder in one of its formats."""

import os
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from rood._lazy import optional
from rood._offline import offline
from rood.data._reading import Reading
from rood.data._spec import query
from rood.data.base import ImageSet, LoadOptions, Source, limit_note, spaced
from rood.data.images import EXTENSIONS
from rood.errors import DataError

OPTIONS = ("split", "config", "image", "label")
LABELS = ("label", "labels", "fine_label", "class")


class HuggingFace(Source):
    """NAME?split=test&image=COLUMN&label=COLUMN&config=NAME; all but NAME is optional.

    NAME is a data set of the hub, which is streamed, or a folder. Columns are found by their types
    unless named. A limit takes evenly spaced images of a folder written by save_to_disk, and the
    first images of a seeded shuffle of a stream. Needs the extra `hub`.
    """

    def read(self, argument: str, options: LoadOptions) -> ImageSet:
        name, chosen = query(argument, OPTIONS)
        return image_set(_rows(name, chosen), name, options, chosen)


def is_data_set(thing: object) -> bool:
    """Whether it is a data set of the library datasets, which is not imported for that."""
    cls = type(thing)
    return cls.__module__.startswith("datasets.") and cls.__name__ in ("Dataset", "IterableDataset")


def image_set(
    rows: Any, name: str, options: LoadOptions, chosen: Mapping[str, str] | None = None
) -> ImageSet:
    """The images of a data set; `chosen` may name its columns."""
    reading, groups = Reading(options), dict[str, str]()
    image, label = _columns(rows.features, chosen or {}, name)
    group = _group_column(rows.features, options.groups, name)
    rows, notes = _limited(rows.with_format(None), options.limit)
    rows = rows.cast_column(image, _datasets().Image(decode=False))
    for i, row in enumerate(islice(iter(rows), options.limit)):
        where = f"image {i} of {name!r}"
        y = -1 if label is None or row[label] is None else int(row[label])
        content = _content(row[image], where)
        reading.add(content, y, name=f"{i:08d}", where=where)
        groups[f"{i:08d}"] = "" if group is None or row[group] is None else str(row[group])
    images = reading.image_set(
        name.rstrip("/").rpartition("/")[2],
        repr(name),
        labelled=label is not None,
        classes=getattr(rows.features.get(label), "names", None) or (),
        notes=notes,
    )
    if group is None:
        return images
    return replace(images, groups=tuple(groups[f] for f in images.files))


def _datasets() -> Any:
    return optional("datasets", "hub")


def _rows(name: str, options: Mapping[str, str]) -> Any:
    """The data set that a spec names; one of the hub is a stream."""
    datasets = _datasets()
    folder = Path(name).expanduser()
    split = options.get("split", "test")
    try:
        if any(os.path.isfile(folder / f"dataset_{n}.json") for n in ("info", "dict")):
            whole = datasets.load_from_disk(str(folder))
            return whole[split] if isinstance(whole, dict) else whole
        if offline() and not os.path.isdir(folder):
            raise DataError(f"expected {name!r} on this machine, since rood is offline, got none")
        place = str(folder) if os.path.isdir(folder) else name
        return datasets.load_dataset(place, options.get("config"), split=split, streaming=True)
    except (OSError, ValueError, KeyError, datasets.exceptions.DatasetsError) as e:
        if isinstance(e, DataError):
            raise
        reason = " ".join(str(e).split())[:200]
        raise DataError(
            f"expected a data set with a split {split!r} at {name!r}, got: {reason}"
        ) from e


def _limited(rows: Any, limit: int | None) -> tuple[Any, list[str]]:
    """At most `limit` rows, and a note on that."""
    if limit is None:
        return rows, []
    if hasattr(rows, "select"):  # a stream has none
        places = spaced(len(rows), limit)
        return rows.select(places), limit_note(len(places), len(rows))
    note = f"used at most {limit} images, the first of a seeded shuffle of the stream"
    return rows.shuffle(seed=0, buffer_size=10 * limit), [note]


def _columns(features: Any, options: Mapping[str, str], name: str) -> tuple[str, str | None]:
    """The columns of the images and the labels."""
    datasets = _datasets()
    kinds = dict(features or {})
    images = [c for c, kind in kinds.items() if isinstance(kind, datasets.Image)]
    image = options.get("image") or (images[0] if len(images) == 1 else None)
    if image is None or image not in kinds:
        found = ", ".join(kinds) or "no columns"
        raise DataError(
            f"expected one column of images in {name!r}, got {found}: say ?image=COLUMN"
        )
    classes = [c for c, kind in kinds.items() if isinstance(kind, datasets.ClassLabel)]
    usual = [c for c in LABELS if c in kinds]
    label = options.get("label") or (classes[0] if len(classes) == 1 else next(iter(usual), None))
    if label is not None and label not in kinds:
        raise DataError(f"expected a column {label!r} in {name!r}, got {', '.join(kinds)}")
    return image, label


def _group_column(features: Any, groups: str | None, name: str) -> str | None:
    if groups is None or groups in dict(features or {}):
        return groups
    found = ", ".join(dict(features or {})) or "no columns"
    raise DataError(f"expected a column {groups!r} of groups in {name!r}, got {found}")


def _content(value: Any, where: str) -> Path | bytes:
    """The bytes of an image or its file; empty if the row has no image."""
    given = value if isinstance(value, Mapping) else {}
    if given.get("bytes") or not given.get("path"):
        return bytes(given.get("bytes") or b"")
    if Path(str(given["path"])).suffix.lower() in EXTENSIONS:
        return Path(str(given["path"]))
    raise DataError(f"expected an image file in {where}, got {str(given['path'])!r}")
