"""A cache of decoded images in the folder that the environment variable ROOD_CACHE names.

Each set is an .npy file of 8-bit pixels, memory-mapped on reading, and a JSON file with labels,
names and a checksum of both. The key contains name, size and modification time of every file,
so that a changed folder is read again.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rood import config
from rood._files import Folder, expanded, opened
from rood._parsing import json_file
from rood.data.base import ImageSet
from rood.errors import DataError

FORMAT = 2  # in the key: a cache of another format is not found
VARIABLE = "ROOD_CACHE"
CARD = 1 << 30  # bytes that a card may have: names of millions of images
WORDS = ("classes", "notes", "files")
KINDS: dict[str, Any] = {
    "name": str,
    "sha256": str,
    "labels": list[int] | None,
    **dict.fromkeys(WORDS, tuple[str, ...]),
}


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
    """The set that was stored; None where there is none, or where it is damaged."""
    try:
        card = json_file(place.with_suffix(".json"), CARD)
        config.check(KINDS, card, "a card of the cache")
        pixels = _mapped(place)
        words = {k: tuple(card[k]) for k in WORDS}
        facts = card["name"], card["labels"], words
        if card["sha256"] != _checksum(pixels, *facts):
            return None  # read and written again
        labels = None if card["labels"] is None else torch.tensor(card["labels"], dtype=torch.int64)
        return ImageSet(name=card["name"], images=torch.from_numpy(pixels), labels=labels, **words)
    except (OSError, ValueError, EOFError, TypeError, AttributeError, RuntimeError):
        return None


def _mapped(place: Path) -> NDArray[np.uint8]:
    """The array in a file; pages are read on access, and writes to them stay in memory."""
    with opened(place):  # a pipe is refused at once
        try:
            pixels: NDArray[np.uint8] = np.load(place, mmap_mode="c", allow_pickle=False)
        except Exception as e:  # tokenize and ast raise errors of their own about a damaged header
            raise ValueError(f"{str(place)!r} is damaged or not an .npy file") from e
    return pixels


def _store(images: ImageSet, place: Path) -> None:
    pixels = np.ascontiguousarray(images.images.numpy())
    labels = None if images.labels is None else images.labels.tolist()
    words = {k: getattr(images, k) for k in WORDS}
    card = {"name": images.name, "labels": labels, **words}
    card["sha256"] = _checksum(pixels, images.name, labels, words)
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


def _checksum(
    pixels: NDArray[np.uint8], name: str, labels: list[int] | None, words: Mapping[str, Any]
) -> str:
    digest = hashlib.sha256(json.dumps([name, labels, words], sort_keys=True).encode())
    digest.update(f"{pixels.dtype.str} {pixels.shape}".encode())
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.hexdigest()
