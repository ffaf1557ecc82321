"""Images read one by one, brought to one size, and what happened to them on the way."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from rood.data._images import Picture, decode, resize
from rood.data.base import ImageSet, Shape, check_shape
from rood.errors import DataError


def shown(path: Path) -> str:
    """A path as messages show it: quoted, with anything unprintable escaped."""
    return repr(str(path))


def used(n: int, total: int) -> str:
    """The note about a limit."""
    return f"used {n} of {total} images, evenly spaced in order of their names"


@dataclass
class Reading:
    """The images read so far, all of one size, and what happened on the way."""

    shape: Shape | None
    pictures: list[Picture] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)  # as stored: height, width

    def __post_init__(self) -> None:
        if self.shape is not None:
            check_shape(self.shape)

    def add(self, file: Path | bytes, label: int, skip_bad: bool, *, name: str, where: str) -> None:
        """Take in one image; `name` goes with it, `where` is how messages show it."""
        try:
            picture = decode(file, self.shape[0] if self.shape else None, shown=where)
        except DataError as error:
            self.leave_out(error, skip_bad, name)
            return
        h, w = picture.pixels.shape[:2]
        self.sizes[h, w] += 1
        pixels = resize(picture.pixels, *self.target())
        self.pictures.append(picture._replace(pixels=pixels))
        self.labels.append(label)
        self.names.append(text(name))

    def leave_out(self, error: DataError, skip_bad: bool, name: str) -> None:
        """Skip an image that cannot be read, or refuse it where nobody asked for that."""
        if not skip_bad:
            raise DataError(f"{error}: repair it, remove it, or use --skip-bad") from error
        self.skipped.append(name)

    def image_set(
        self,
        name: str,
        where: str,  # how messages show the source
        *,
        labelled: bool,
        classes: Iterable[str] = (),
        notes: Iterable[str] = (),  # besides what happened in reading
    ) -> ImageSet:
        """All that was read."""
        if not self.pictures:
            raise DataError(f"expected images in {where}, got {self.skipped_files()}")
        return ImageSet(
            name=text(name),
            images=torch.from_numpy(self.stack()),
            labels=torch.tensor(self.labels) if labelled else None,
            classes=tuple(text(c) for c in classes),
            notes=(*notes, *self.notes()),
            files=tuple(self.names),
        )

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


def text(name: str) -> str:
    """File names need not be UTF-8, but everything that is written later must be."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")
