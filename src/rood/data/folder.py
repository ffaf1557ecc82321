"""Images in folders."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from rood.data._images import EXTENSIONS, Picture, decode, resize
from rood.data.base import ImageSet, Shape, Source, check_shape, spaced
from rood.errors import DataError


class Folder(Source):
    """A folder of image files, with or without one sub-folder for each class.

    Sub-folders, in alphabetical order, are the classes; images that lie directly in the folder have
    no labels. Hidden files and folders are ignored. Images of another size than `shape` (or than
    the first image) are resized and the notes say so.
    """

    def load(
        self,
        argument: str,
        *,
        shape: Shape | None = None,
        limit: int | None = None,
        skip_bad: bool = False,
    ) -> ImageSet:
        if shape is not None:
            check_shape(shape)
        root = Path(os.path.expanduser(argument))
        files, labels, classes = _layout(root)
        chosen = spaced(len(files), limit)
        reading = _Reading(root, shape)
        for i in chosen:
            reading.add(files[i], labels[i], skip_bad)
        if not reading.pictures:
            raise DataError(f"expected images in {shown(root)}, got {reading.skipped_files()}")
        _check_classes(root, classes, {labels[i] for i in chosen}, reading.labels)
        notes = [] if len(chosen) == len(files) else [_used(len(chosen), len(files))]
        return ImageSet(
            name=_text(root.resolve().name),
            images=torch.from_numpy(reading.stack()),
            labels=torch.tensor(reading.labels) if classes else None,
            classes=tuple(_text(c) for c in classes),
            notes=(*notes, *reading.notes()),
            files=tuple(reading.names),
        )


def shown(path: Path) -> str:
    """A path as messages show it: quoted, with anything unprintable escaped."""
    return repr(str(path))


def _layout(root: Path) -> tuple[list[Path], list[int], list[str]]:
    """Files in order, the place of each one's class, and the classes (none where all lie flat)."""
    if not root.exists():
        raise DataError(f"expected a folder of images, but {shown(root)} does not exist")
    if not root.is_dir():
        raise DataError(f"expected a folder of images, but {shown(root)} is a file")
    entries = [e for e in _listed(root) if not e.name.startswith(".")]
    flat = [e for e in entries if _is_image(e)]
    inside = {e.name: _below(e) for e in entries if e.is_dir()}
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


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir(), key=lambda e: e.name)
    except OSError as error:
        raise DataError(f"{shown(folder)} cannot be listed: {error.strerror}") from error


def _below(folder: Path) -> list[Path]:
    """Every image under a class folder; links to further folders are not followed (no loops)."""
    found: list[Path] = []
    for entry in _listed(folder):
        if entry.name.startswith("."):
            continue
        if _is_image(entry):
            found.append(entry)
        elif entry.is_dir() and not entry.is_symlink():
            found += _below(entry)
    return found


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in EXTENSIONS and path.is_file()


def _check_classes(
    root: Path, classes: Sequence[str], wanted: Iterable[int], got: Iterable[int]
) -> None:
    if classes and (lost := sorted(set(wanted) - set(got))):
        raise DataError(
            f"expected readable images in every class folder of {shown(root)}, but no file of "
            f"{classes[lost[0]]!r} could be read"
        )


def _used(n: int, total: int) -> str:
    return f"used {n} of {total} images, evenly spaced in order of their names"


@dataclass
class _Reading:
    """The images read so far, all of one size, and what happened on the way."""

    root: Path
    shape: Shape | None
    pictures: list[Picture] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)  # as stored: height, width

    def add(self, file: Path, label: int, skip_bad: bool) -> None:
        name = file.relative_to(self.root).as_posix()
        try:
            picture = decode(file, self.shape[0] if self.shape else None, shown=shown(file))
        except DataError as error:
            if not skip_bad:
                raise DataError(f"{error}: repair it, remove it, or use --skip-bad") from error
            self.skipped.append(name)
            return
        h, w = picture.pixels.shape[:2]
        self.sizes[h, w] += 1
        pixels = resize(picture.pixels, *self.target())
        self.pictures.append(picture._replace(pixels=pixels))
        self.labels.append(label)
        self.names.append(_text(name))

    def target(self) -> tuple[int, int]:
        return self.shape[1:] if self.shape else next(iter(self.sizes))

    def channels(self) -> int:
        if self.shape:
            return self.shape[0]
        return 1 if all(p.was_grey for p in self.pictures) else 3

    def stack(self) -> NDArray[np.uint8]:
        """All pixels, (n, c, h, w)."""
        stacked = np.empty((len(self.pictures), self.channels(), *self.target()), np.uint8)
        for i, picture in enumerate(self.pictures):
            stacked[i] = picture.pixels.transpose(2, 0, 1)  # one grey plane fills all three
        return stacked

    def notes(self) -> list[str]:
        h, w = self.target()
        colour = self.channels() == 3
        recoloured = sum(p.was_grey == colour for p in self.pictures)
        transparent = sum(p.was_transparent for p in self.pictures)
        animated = sum(p.was_animated for p in self.pictures)
        resized = len(self.pictures) - self.sizes[h, w]
        first = next(iter(self.sizes))
        sizes = f"{first[0]}x{first[1]}" if len(self.sizes) == 1 else f"{len(self.sizes)} sizes"
        kinds = "grey to colour" if colour else "colour to grey"
        told = {
            f"{self.skipped_files()}": len(self.skipped),
            f"{_images(resized)} resized from {sizes} to {h}x{w} (height x width)": resized,
            f"{_images(recoloured)} converted from {kinds}": recoloured,
            f"{_images(transparent)} laid over white where transparent": transparent,
            f"{_images(animated)} cut to the first of several frames": animated,
        }
        return [note for note, n in told.items() if n]

    def skipped_files(self) -> str:
        total = len(self.skipped) + len(self.pictures)
        named = ", ".join(repr(name) for name in self.skipped[:5])
        more = f" and {len(self.skipped) - 5} more" if len(self.skipped) > 5 else ""
        verb = "was" if len(self.skipped) == 1 else "were"
        head = f"{len(self.skipped)} of {total} files could not be read and {verb} skipped"
        return f"{head}: {named}{more}"


def _images(n: int) -> str:
    return "1 image was" if n == 1 else f"{n} images were"


def _text(name: str) -> str:
    """File names need not be UTF-8, but everything that is written later must be."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")
