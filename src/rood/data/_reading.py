"""Image files read one by one into an image set, with notes on what was converted or skipped."""

import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from rood._files import as_utf8
from rood.data.base import ImageSet, LoadOptions
from rood.data.images import DecodedImage, decode, resize
from rood.errors import DataError


@dataclass
class Reading:
    """The images read so far, all of one size."""

    options: LoadOptions
    pictures: list[DecodedImage] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)  # in the files: height, width

    def add(self, file: Path | bytes, label: int, *, name: str, where: str) -> None:
        """Decode one image and keep it under `name`; `where` is for the error."""
        shape = self.options.shape
        try:
            picture = decode(file, shape[0] if shape else None, shown=where)
        except DataError as error:
            self.skip(error, name)
            return
        h, w = picture.pixels.shape[:2]
        self.sizes[h, w] += 1
        pixels = resize(picture.pixels, *self.target())
        self.pictures.append(picture._replace(pixels=pixels))
        self.labels.append(label)
        self.names.append(as_utf8(name))

    def skip(self, error: DataError, name: str) -> None:
        """Skip an unreadable image, or raise unless `skip_bad` is set."""
        if not self.options.skip_bad:
            raise DataError(f"{error}: repair it, remove it, or use --skip-bad") from error
        self.skipped.append(name)

    def image_set(
        self,
        name: str,
        where: str,  # the source, for the error
        *,
        labelled: bool | None = None,  # None: if any image is
        classes: Iterable[str] = (),
        notes: Iterable[str] = (),  # besides those about decoding
    ) -> ImageSet:
        """All images read so far."""
        if not self.pictures:
            raise DataError(f"expected images in {where}, got {self.skipped_files()}")
        if labelled is None:
            labelled = any(label >= 0 for label in self.labels)
        return ImageSet(
            name=as_utf8(name),
            images=torch.from_numpy(self.stack()),
            labels=torch.tensor(self.labels) if labelled else None,
            classes=tuple(as_utf8(c) for c in classes),
            notes=(*notes, *self.notes()),
            files=tuple(self.names),
        )

    def target(self) -> tuple[int, int]:
        shape = self.options.shape
        return shape[1:] if shape else next(iter(self.sizes))

    def channels(self) -> int:
        if self.options.shape:
            return self.options.shape[0]
        return 1 if all(p.was_grey for p in self.pictures) else 3

    def stack(self) -> NDArray[np.uint8]:
        """All pixels, (n, c, h, w)."""
        stacked = np.empty((len(self.pictures), self.channels(), *self.target()), np.uint8)
        for i, picture in enumerate(self.pictures):
            stacked[i] = picture.pixels.transpose(2, 0, 1)  # broadcasts a grey plane to RGB
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
        counted = {
            f"{self.skipped_files()}": len(self.skipped),
            f"{_images(resized)} resized from {sizes} to {h}x{w} (height x width)": resized,
            f"{_images(recoloured)} converted from {kinds}": recoloured,
            f"{_images(transparent)} laid over white where transparent": transparent,
            f"{_images(animated)} cut to the first of several frames": animated,
        }
        return [note for note, n in counted.items() if n]

    def skipped_files(self) -> str:
        total = len(self.skipped) + len(self.pictures)
        named = ", ".join(repr(name) for name in self.skipped[:5])
        more = f" and {len(self.skipped) - 5} more" if len(self.skipped) > 5 else ""
        verb = "was" if len(self.skipped) == 1 else "were"
        head = f"{len(self.skipped)} of {total} files could not be read and {verb} skipped"
        return f"{head}: {named}{more}"


def as_png(image: Image.Image) -> bytes:
    """Encoded losslessly, so that every image goes through the same decoder."""
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()


def _images(n: int) -> str:
    return "1 image was" if n == 1 else f"{n} images were"
