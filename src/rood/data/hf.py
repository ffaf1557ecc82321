"""Data sets of the Hugging Face hub, or of a folder saved as the hub or `datasets` has them."""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from rood._offline import offline
from rood.data._images import EXTENSIONS
from rood.data._query import divided
from rood.data._reading import Reading
from rood.data.base import ImageSet, Shape, Source, spaced
from rood.errors import CapabilityError, DataError

OPTIONS = ("split", "config", "image", "label")
LABELS = ("label", "labels", "fine_label", "class")


class HuggingFace(Source):
    """NAME?split=test&image=COLUMN&label=COLUMN&config=NAME; all but NAME may be left out.

    NAME is one of the hub's, read as a stream so that nothing large is stored, or a folder. Columns
    are found by their types where they are not named. A limit takes evenly spaced images of a
    folder that was saved by save_to_disk, and the first of a seeded shuffle of a stream. Needs the
    extra `hub`.
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
        name, options = divided(argument, OPTIONS)
        spaced(1, limit)  # refuses a limit below 1
        rows, notes = _rows(name, options, limit)
        image, label = _columns(rows.features, options, name)
        rows = rows.cast_column(image, _datasets().Image(decode=False))
        for i, row in enumerate(_first(rows, limit)):
            where = f"image {i} of {name!r}"
            y = -1 if label is None or row[label] is None else int(row[label])
            content = _content(row[image], where)
            reading.add(content, y, skip_bad, name=f"{i:08d}", where=where)
        return reading.image_set(
            name.rstrip("/").rpartition("/")[2],
            repr(name),
            labelled=label is not None,
            classes=getattr(rows.features.get(label), "names", None) or (),
            notes=notes,
        )


def _datasets() -> Any:
    try:
        import datasets
    except ImportError as e:
        raise CapabilityError("needs datasets: pip install 'rood[hub]'") from e
    return datasets


def _rows(name: str, options: Mapping[str, str], limit: int | None) -> tuple[Any, list[str]]:
    """The rows, and a note where a limit picks among them."""
    datasets = _datasets()
    folder = Path(name).expanduser()
    split = options.get("split", "test")
    try:
        if (folder / "dataset_info.json").is_file() or (folder / "dataset_dict.json").is_file():
            whole = datasets.load_from_disk(str(folder))
            whole = whole[split] if isinstance(whole, dict) else whole
            places = spaced(len(whole), limit)
            note = f"used {len(places)} of {len(whole)} images, evenly spaced"
            return whole.select(places), [note] if len(places) < len(whole) else []
        if offline() and not folder.is_dir():
            raise DataError(f"expected {name!r} on this machine, since rood is offline, got none")
        place = str(folder) if folder.is_dir() else name
        stream = datasets.load_dataset(place, options.get("config"), split=split, streaming=True)
    except (OSError, ValueError, KeyError, datasets.exceptions.DatasetsError) as e:
        if isinstance(e, DataError):
            raise
        reason = " ".join(str(e).split())[:200]
        raise DataError(
            f"expected a data set with a split {split!r} at {name!r}, got: {reason}"
        ) from e
    if limit is None:
        return stream, []
    note = f"used at most {limit} images, the first of a seeded shuffle of the stream"
    return stream.shuffle(seed=0, buffer_size=10 * limit), [note]


def _columns(features: Any, options: Mapping[str, str], name: str) -> tuple[str, str | None]:
    """Which columns hold the images and the labels."""
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


def _first(rows: Any, limit: int | None) -> Iterator[Mapping[str, Any]]:
    return iter(rows) if limit is None else islice(iter(rows), limit)


def _content(value: Any, where: str) -> Path | bytes:
    """The bytes of an image, or the file that has them; none where a row has no image."""
    given = value if isinstance(value, Mapping) else {}
    if given.get("bytes") or not given.get("path"):
        return bytes(given.get("bytes") or b"")
    if Path(str(given["path"])).suffix.lower() in EXTENSIONS:
        return Path(str(given["path"]))
    raise DataError(f"expected an image file in {where}, got {str(given['path'])!r}")
