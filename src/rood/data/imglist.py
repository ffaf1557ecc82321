"""Image lists in the format of OpenOOD."""

import os
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rood._files import as_utf8, content, expanded, shown
from rood.data._reading import Reading
from rood.data.base import FOLDER, ImageSet, LoadOptions, Source, limit_note, spaced
from rood.data.cache import cached, listing
from rood.data.folder import IN_ORDER
from rood.errors import DataError

LIST = 1 << 30  # bytes that a list may have: ten million images
ROOTS = ("images_classic", "images_largescale", "images_medical", ".")  # beside benchmark_imglist


class Imglist(Source):
    """A text file with a path and a label per line: LIST.txt, or LIST.txt@ROOT for another root.

    Without ROOT, images are looked for where OpenOOD 1.5 puts them: in images_classic or
    images_largescale beside the folder benchmark_imglist. -1 is no label. Paths may contain spaces.
    A first line "# path label video" names further columns, by which images can be grouped.
    """

    def read(self, argument: str, options: LoadOptions) -> ImageSet:
        list_name, _, root_name = argument.partition("@")
        path = expanded(list_name)
        lines = _lines(path, options.groups if options.groups != FOLDER else None)
        root = expanded(root_name) if root_name else _root(path, lines[0].name)
        chosen = [lines[i] for i in spaced(len(lines), options.limit)]
        files = [root / line.name for line in chosen]
        if gone := [f for f in files if not os.path.isfile(f)]:
            raise DataError(
                f"expected the {len(files)} files that {shown(path)} lists in {shown(root)}, "
                f"got none called {gone[0].relative_to(root).as_posix()!r} "
                f"({len(gone)} missing): say LIST@ROOT"
            )

        def read() -> ImageSet:
            reading = Reading(options)
            for file, line in zip(files, chosen, strict=True):
                reading.add(file, line.label, name=line.name, where=shown(file))
            notes = limit_note(len(chosen), len(lines), IN_ORDER)
            return reading.image_set(path.stem, shown(path), notes=notes)

        plain = [(line.name, line.label) for line in chosen]
        key = (path.resolve(), root.resolve(), plain, options.shape, options.skip_bad)
        images = cached(read, "imglist", *key, listing(files))
        groups = {as_utf8(line.name): line.group for line in chosen if line.group is not None}
        return replace(images, groups=tuple(groups[f] for f in images.files)) if groups else images


class _Line(NamedTuple):
    name: str
    label: int
    group: str | None  # None where no column of groups is asked for


def _lines(path: Path, column: str | None) -> list[_Line]:
    if not os.path.isfile(path):
        what = "is a folder" if os.path.isdir(path) else "does not exist"
        raise DataError(f"expected a list of images, but {shown(path)} {what}")
    try:
        lines = [line.strip() for line in content(path, LIST).decode("utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise DataError(f"expected a list of images as UTF-8 text, got {shown(path)}") from error
    except OSError as error:
        raise DataError(f"{shown(path)} cannot be read: {error.strerror}") from error
    found: list[_Line] = []
    further, at = _further_columns(path, lines, column)
    for i, line in enumerate(lines, start=1):
        if not line or (i == 1 and further and line.startswith("#")):
            continue
        name, *fields = line.rsplit(maxsplit=1 + further)
        try:
            if len(fields) != 1 + further:
                raise ValueError
            group = None if at is None else fields[at]
            found.append(_Line(name.strip(), int(fields[0]), group))
        except ValueError as error:
            more = f" and {further} more columns" if further else ""
            raise DataError(
                f"expected a path and a whole number{more} in line {i} of {shown(path)}, "
                f"got {line!r:.80}"
            ) from error
        if not name or found[-1].label < -1 or ".." in Path(name).parts or Path(name).is_absolute():
            raise DataError(
                f"expected a path below the root and a label from -1 in line {i} of "
                f"{shown(path)}, got {line!r:.80}"
            )
    if not found:
        raise DataError(f"expected a path and a label per line in {shown(path)}, got an empty file")
    return found


def _further_columns(path: Path, lines: list[str], column: str | None) -> tuple[int, int | None]:
    """How many columns follow path and label, and which field has the groups."""
    head = lines[0].lstrip("#").split() if lines and lines[0].startswith("#") else []
    head = head if head[:2] == ["path", "label"] else ["path", "label"]
    if column is None or column in head[2:]:
        return len(head) - 2, None if column is None else head.index(column) - 1
    raise DataError(
        f"expected a column {column!r} in {shown(path)}, got {', '.join(head)}: "
        'name it in the first line, "# path label VIDEO"'
    )


def _root(path: Path, first: str) -> Path:
    """The folder in which OpenOOD keeps the images of a list."""
    for folder in path.resolve().parents:
        if folder.name == "benchmark_imglist":
            for name in ROOTS:
                if os.path.isfile(folder.parent / name / first):
                    return folder.parent / name
    return path.resolve().parent
