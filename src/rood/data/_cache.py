"""Decoded images kept on disk, where the environment variable ROOD_CACHE names a folder for them.

One .npy file a set, 8-bit and memory-mapped when it is read again, beside a JSON file with labels,
names and the checksum of the pixels. The key holds the name, size and time of every file, so that a
changed folder is read anew.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rood.data._paths import expanded
from rood.data.base import ImageSet
from rood.errors import DataError

FORMAT = 1
VARIABLE = "ROOD_CACHE"


def cached(read: Callable[[], ImageSet], *key: object) -> ImageSet:
    """What `read` gives, from the cache where it is there and whole."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return read()
    digest = hashlib.sha256("\n".join(map(repr, (FORMAT, *key))).encode()).hexdigest()[:32]
    place = expanded(folder) / f"{digest}.npy"
    if (found := _found(place)) is not None:
        return found
    images = read()
    _keep(images, place)
    return images


def listing(files: Iterable[Path]) -> str:
    """A hash of the names, sizes and times of files: what a change of any of them changes."""
    digest = hashlib.sha256()
    for file in files:
        stat = file.stat()
        digest.update(f"{str(file)!r} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _found(place: Path) -> ImageSet | None:
    try:
        card: dict[str, Any] = json.loads(place.with_suffix(".json").read_text())
        # "c": pages are read when they are used, and what is written to them stays in memory
        pixels: NDArray[np.uint8] = np.load(place, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if card["sha256"] != _checksum(pixels):
        return None  # damaged: read again, and write it anew
    labels = None if card["labels"] is None else torch.tensor(card["labels"], dtype=torch.int64)
    words = {k: tuple(card[k]) for k in ("classes", "notes", "files")}
    return ImageSet(name=card["name"], images=torch.from_numpy(pixels), labels=labels, **words)


def _keep(images: ImageSet, place: Path) -> None:
    pixels = np.ascontiguousarray(images.images.numpy())
    labels = None if images.labels is None else images.labels.tolist()
    words = {k: list(getattr(images, k)) for k in ("classes", "notes", "files")}
    card = {"name": images.name, "labels": labels, "sha256": _checksum(pixels), **words}
    # names of their own: another process may keep the same images at the same time
    parts = [place.with_name(f"{place.stem}.{os.getpid()}.part{end}") for end in (".npy", ".json")]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        np.save(parts[0], pixels, allow_pickle=False)
        parts[1].write_text(json.dumps(card))
        for part in parts:
            os.replace(part, place.with_suffix(part.suffix))
    except OSError as e:
        raise DataError(
            f"cannot keep images in {str(place.parent)!r} ({(e.strerror or str(e)).lower()}): name "
            f"another folder with {VARIABLE}, or none"
        ) from e
    finally:
        for part in parts:
            with suppress(OSError):
                part.unlink()


def _checksum(pixels: NDArray[np.uint8]) -> str:
    return hashlib.sha256(np.ascontiguousarray(pixels).data).hexdigest()
