"""A cache of decoded images in the folder that the environment variable ROOD_CACHE names.

Each set is an .npy file of 8-bit pixels, memory-mapped on reading, and a JSON file with labels,
names and a checksum of the pixels. The key contains name, size and modification time of every file,
so that a changed folder is read again.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rood._files import Folder, expanded
from rood.data.base import ImageSet
from rood.errors import DataError

FORMAT = 1
VARIABLE = "ROOD_CACHE"


def cached(read: Callable[[], ImageSet], *key: object) -> ImageSet:
    """The result of `read`, taken from the cache if it is there and undamaged."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return read()
    digest = hashlib.sha256("\n".join(map(repr, (FORMAT, *key))).encode()).hexdigest()[:32]
    place = expanded(folder) / f"{digest}.npy"
    if (found := _found(place)) is not None:
        return found
    images = read()
    _store(images, place)
    return images


def listing(files: Iterable[Path]) -> str:
    """A hash of the names, sizes and modification times of files."""
    digest = hashlib.sha256()
    for file in files:
        stat = file.stat()
        digest.update(f"{str(file)!r} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _found(place: Path) -> ImageSet | None:
    try:
        card: dict[str, Any] = json.loads(place.with_suffix(".json").read_text())
        # "c": pages are read on access, and writes to them stay in memory
        pixels: NDArray[np.uint8] = np.load(place, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if card["sha256"] != _checksum(pixels):
        return None  # damaged: read and write it again
    labels = None if card["labels"] is None else torch.tensor(card["labels"], dtype=torch.int64)
    words = {k: tuple(card[k]) for k in ("classes", "notes", "files")}
    return ImageSet(name=card["name"], images=torch.from_numpy(pixels), labels=labels, **words)


def _store(images: ImageSet, place: Path) -> None:
    pixels = np.ascontiguousarray(images.images.numpy())
    labels = None if images.labels is None else images.labels.tolist()
    words = {k: list(getattr(images, k)) for k in ("classes", "notes", "files")}
    card = {"name": images.name, "labels": labels, "sha256": _checksum(pixels), **words}
    folder = Folder(place.parent)
    try:
        with folder.writing(place.name) as file:
            np.save(file, pixels, allow_pickle=False)
        folder.write(place.with_suffix(".json").name, json.dumps(card).encode())
    except OSError as e:
        raise DataError(
            f"cannot write to the cache {str(place.parent)!r} ({(e.strerror or str(e)).lower()}): "
            f"set {VARIABLE} to another folder, or unset it"
        ) from e


def _checksum(pixels: NDArray[np.uint8]) -> str:
    return hashlib.sha256(np.ascontiguousarray(pixels).data).hexdigest()
