"""Images in folders."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from rood._files import expanded, shown
from rood.data._reading import Reading
from rood.data.base import ImageSet, LoadOptions, Source, limit_note, spaced
from rood.data.cache import cached, listing
from rood.data.images import EXTENSIONS
from rood.errors import DataError

IN_ORDER = " in order of their names"


class Folder(Source):
    """A folder of image files, with or without one sub-folder per class.

    Sub-folders in alphabetical order are the classes; images directly in the folder are unlabelled.
    Hidden files and folders are ignored. Images of another size than `shape`, or than the first
    image, are resized, with a note.
    """

    def read(self, argument: str, options: LoadOptions) -> ImageSet:
        root = expanded(argument)
        files, labels, classes = _layout(root)
        chosen = spaced(len(files), options.limit)

        def read() -> ImageSet:
            reading = Reading(options)
            for i in chosen:
                name, where = files[i].relative_to(root).as_posix(), shown(files[i])
                reading.add(files[i], labels[i], name=name, where=where)
            notes = limit_note(len(chosen), len(files), IN_ORDER)
            name = root.resolve().name
            found = reading.image_set(name, shown(root), classes=classes, notes=notes)
            _check_classes(root, classes, {labels[i] for i in chosen}, reading.labels)
            return found

        key = (root.resolve(), options.shape, options.limit, options.skip_bad, listing(files))
        return cached(read, "folder", *key)


def _layout(root: Path) -> tuple[list[Path], list[int], list[str]]:
    """All files in order, the label of each, and the classes (none for a flat folder)."""
    if not os.path.exists(root):
        raise DataError(f"expected a folder of images, but {shown(root)} does not exist")
    if not os.path.isdir(root):
        raise DataError(f"expected a folder of images, but {shown(root)} is a file: {_do(root)}")
    entries = [e for e in _listed(root) if not e.name.startswith(".")]
    flat = [e for e in entries if _is_image(e)]
    inside = {e.name: _below(e) for e in entries if os.path.isdir(e)}
    if flat and any(inside.values()):
        name = next(n for n, files in inside.items() if files)
        raise DataError(
            f"expected images either directly in {shown(root)} or in class folders, got both "
            f"({flat[0].name!r} and folder {name!r}): move one kind away"
        )
    if flat:
        return flat, [-1] * len(flat), []
    if not any(inside.values()):
        kinds = " ".join(sorted(e.removeprefix(".") for e in EXTENSIONS))
        raise DataError(f"expected images in {shown(root)}, got none (looked for {kinds})")
    if empty := [name for name, files in inside.items() if not files]:
        raise DataError(
            f"expected images in every class folder of {shown(root)}, got none in {empty[0]!r}: "
            f"remove it or fill it"
        )
    if len(inside) == 1:
        raise DataError(
            f"expected at least two class folders in {shown(root)}, got one "
            f"({next(iter(inside))!r}): put the images directly in the folder if they have no "
            f"classes"
        )
    files = [f for found in inside.values() for f in found]
    labels = [i for i, found in enumerate(inside.values()) for _ in found]
    return files, labels, list(inside)


def _do(file: Path) -> str:
    packed = file.suffix.lower() in (".zip", ".tar", ".gz", ".tgz", ".7z", ".rar")
    return "unpack it" if packed else "give the folder that holds it"


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir(), key=lambda e: e.name)
    except OSError as error:
        raise DataError(f"{shown(folder)} cannot be listed: {error.strerror}") from error


def _below(folder: Path) -> list[Path]:
    """Every image below a class folder; links to folders are not followed, to avoid loops."""
    found: list[Path] = []
    for entry in _listed(folder):
        if entry.name.startswith("."):
            continue
        if _is_image(entry):
            found.append(entry)
        elif os.path.isdir(entry) and not os.path.islink(entry):
            found += _below(entry)
    return found


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in EXTENSIONS and os.path.isfile(path)


def _check_classes(
    root: Path, classes: Sequence[str], wanted: Iterable[int], got: Iterable[int]
) -> None:
    if classes and (lost := sorted(set(wanted) - set(got))):
        raise DataError(
            f"expected readable images in every class folder of {shown(root)}, but no file of "
            f"{classes[lost[0]]!r} could be read"
        )
