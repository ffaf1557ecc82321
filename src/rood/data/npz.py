"""Images in NumPy archives."""

import math
import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import torch
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from rood import config
from rood._files import expanded, opened
from rood._parsing import json_of
from rood.data._layout import channels_axis
from rood.data.base import FOLDER, ImageSet, LoadOptions, Source
from rood.data.images import decode
from rood.errors import ConfigError, DataError, InputError

SIDE = 1 << 14  # pixels of a side
ROOM, PACKED = 1 << 30, 100  # bytes that an array may have; beyond it, times its packed size
_header_1_0 = np.lib.format.read_array_header_1_0
_header_2_0 = np.lib.format.read_array_header_2_0

_Meta: TypeAlias = Mapping[str, Any]


class Npz(Source):
    """An .npz file with the array `images` and, optionally, `labels` and `classes`.

    `images` is uint8 or float in [0, 1], of shape (n, h, w), (n, h, w, c) or (n, c, h, w). Packed
    archives are read too: a JSON text `meta` then names the encoding, "webp-lossless" (contact
    sheets `webp_000`, ... with `cols` tiles per row) or "jpeg-concat" (`jpeg`, cut at `offsets`).
    Nothing is ever unpickled. Another array of shape (n,) can name the group of each image.
    """

    def read(self, argument: str, options: LoadOptions) -> ImageSet:
        path = expanded(argument)
        if not os.path.isfile(path):
            what = "is a folder" if os.path.isdir(path) else "does not exist"
            raise DataError(f"expected an .npz file, but {str(path)!r} {what}")
        try:
            with opened(path) as file, _opened(file, repr(str(path))) as archive:
                return _read(_Archive(path, archive), options.groups)
        except OSError as error:
            raise DataError(f"{str(path)!r} cannot be read: {error.strerror}") from error
        except InputError as error:  # raised by ImageSet about the content of this file
            raise DataError(f"{str(path)!r} cannot be used: {error}") from error


class _Archive:
    """Arrays by name, with a clear error for each failure."""

    def __init__(self, path: Path, archive: NpzFile) -> None:
        self.path, self.shown, self._archive = path, repr(str(path)), archive
        self.names = sorted(archive.files)

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self.names:
            have = ", ".join(repr(n) for n in self.names) or "nothing"
            raise DataError(f"expected an array {name!r} in {self.shown}, got {have}")
        try:
            self._check_size(name)
            return np.asarray(self._archive[name])
        except DataError:
            raise
        except ValueError as error:
            if "allow_pickle" in str(error):
                raise DataError(
                    f"array {name!r} in {self.shown} contains Python objects, which rood never "
                    f"unpickles: save it as numbers"
                ) from error
            raise self._damaged(name) from error
        except Exception as error:  # zlib, zipfile and struct each raise errors of their own
            raise self._damaged(name) from error

    def _check_size(self, name: str) -> None:
        """Refuse an array before it is read: one of another size than it says, or a bomb."""
        assert self._archive.zip is not None
        member = self._archive.zip.getinfo(f"{name}.npy")
        with self._archive.zip.open(member) as file:
            version = np.lib.format.read_magic(file)
            read = {(1, 0): _header_1_0, (2, 0): _header_2_0}.get(version)
            if read is None:
                raise self._damaged(name)
            shape, _, dtype = read(file)
        size, head = math.prod(shape) * dtype.itemsize, 1 << 16
        if dtype.hasobject:
            return  # refused by numpy, which never unpickles here
        if min(shape, default=1) < 0 or not size <= member.file_size <= size + head:
            raise self._damaged(name)
        if size > max(ROOM, PACKED * member.compress_size):
            raise DataError(
                f"array {name!r} in {self.shown} grows to {size:,} bytes from "
                f"{member.compress_size:,}: if it is yours, save it with numpy.savez, unpacked"
            )

    def _damaged(self, name: str) -> DataError:
        return DataError(f"array {name!r} in {self.shown} cannot be read: the file is damaged")


def _opened(file: BinaryIO, shown: str) -> NpzFile:
    try:
        archive = np.load(file, allow_pickle=False)
    except Exception as error:  # as above; also for a file that is no archive
        raise DataError(f"{shown} is damaged or not an .npz file") from error
    if not isinstance(archive, NpzFile):
        raise DataError(f"{shown} is a single array: save it with numpy.savez(images=...)")
    return archive


def _read(archive: _Archive, groups: str | None) -> ImageSet:
    meta = _meta(archive)
    encoding = meta.get("encoding", "raw")
    try:
        reader = {"raw": _raw, "webp-lossless": _sheets, "jpeg-concat": _jpegs}[encoding]
    except (KeyError, TypeError) as error:
        raise DataError(f"{archive.shown} has the unknown encoding {encoding!r}") from error
    try:
        images = reader(archive, meta)
    except (KeyError, TypeError, IndexError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{archive.shown} does not match its `meta`: {error}") from error
    if "n" in meta and len(images) != meta["n"]:
        raise DataError(f"expected {meta['n']} images in {archive.shown}, got {len(images)}")
    labels = _labels(archive, len(images))
    return ImageSet(
        name=archive.path.stem,
        images=torch.from_numpy(np.ascontiguousarray(images)),
        labels=labels,
        classes=_classes(archive, meta) if labels is not None else (),
        groups=() if groups in (None, FOLDER) else _groups(archive, len(images), groups),
    )


def _meta(archive: _Archive) -> _Meta:
    if "meta" not in archive.names:
        return {}
    try:
        meta = json_of(str(archive["meta"]))
    except DataError:
        raise
    except ValueError as error:
        raise DataError(f"`meta` in {archive.shown} is not JSON: {error}") from error
    if not isinstance(meta, dict):
        raise DataError(f"expected a JSON object as `meta` in {archive.shown}, got {meta!r:.50}")
    return meta


def _layout(archive: _Archive, meta: _Meta, *more: str) -> tuple[int, int, int]:
    """Height, width and channels of the images that `meta` describes, with its other numbers."""
    kinds = {"shape": tuple[int, ...], **dict.fromkeys(more, int)}
    try:
        config.check(kinds, meta, "`meta`")
    except ConfigError as error:
        raise DataError(f"{archive.shown} does not match its `meta`: {error}") from error
    sizes = [*meta["shape"], *(meta[k] for k in more)]
    h, w, c = (*meta["shape"], 1)[:3]
    ordinary = len(meta["shape"]) in (2, 3) and c in (1, 3) and max(h, w) <= SIDE
    if not ordinary or min(sizes) < 1:
        raise DataError(f"{archive.shown} does not match its `meta`: got the sizes {sizes!r:.80}")
    return h, w, c


def _raw(archive: _Archive, meta: _Meta) -> NDArray[Any]:
    images = archive["images"]
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        raise DataError(
            f"expected uint8 or float images in {archive.shown}, got {images.dtype}: "
            f"convert them with .astype('uint8')"
        )
    if images.dtype.kind == "f":
        images = images.astype(np.float32)
    axis = channels_axis(images.shape, archive.shown)
    return images[:, None] if axis is None else np.moveaxis(images, axis, 1)


def _sheets(archive: _Archive, meta: _Meta) -> NDArray[Any]:
    h, w, c = _layout(archive, meta, "cols", "per_sheet", "n")
    cols, per_sheet, left = meta["cols"], meta["per_sheet"], meta["n"]
    found = []
    for name in (n for n in archive.names if n.startswith("webp_")):
        sheet = decode(archive[name].tobytes(), c, shown=f"{name!r} in {archive.shown}").pixels
        rows = sheet.shape[0] // h
        tiles = sheet.reshape(rows, h, cols, w, c).transpose(0, 2, 4, 1, 3)  # row, column, c, h, w
        found.append(tiles.reshape(rows * cols, c, h, w)[: min(per_sheet, left)])
        left -= len(found[-1])
    if not found:
        raise DataError(f"expected arrays 'webp_000', ... in {archive.shown}, got none")
    return np.concatenate(found)


def _jpegs(archive: _Archive, meta: _Meta) -> NDArray[Any]:
    blob, offsets = archive["jpeg"].tobytes(), archive["offsets"].tolist()
    if not offsets or offsets[0] != 0 or offsets[-1] != len(blob) or offsets != sorted(offsets):
        raise DataError(f"the `offsets` in {archive.shown} do not cut `jpeg` into files")
    h, w, c = _layout(archive, meta)
    images = np.empty((0, c, h, w), np.uint8)
    for i, (start, end) in enumerate(pairwise(offsets)):
        pixels = decode(blob[start:end], c, shown=f"image {i} in {archive.shown}").pixels
        if pixels.shape != (h, w, c):
            raise DataError(f"image {i} in {archive.shown} is {pixels.shape}, not {(h, w, c)}")
        if not i:  # the first one has the size that the others will have
            images = np.empty((len(offsets) - 1, c, h, w), np.uint8)
        images[i] = pixels.transpose(2, 0, 1)
    return images


def _labels(archive: _Archive, n: int) -> torch.Tensor | None:
    if "labels" not in archive.names:
        return None
    labels = archive["labels"]
    if labels.dtype.kind not in "iu" or labels.shape != (n,):
        raise DataError(
            f"expected {n} whole-number `labels` in {archive.shown}, got {labels.dtype} of shape "
            f"{labels.shape}"
        )
    return torch.from_numpy(labels.astype(np.int64))


def _groups(archive: _Archive, n: int, name: str) -> tuple[str, ...]:
    ids = archive[name]
    if ids.shape != (n,):
        raise DataError(
            f"expected a group for each of {n} images as {name!r} in {archive.shown}, got shape "
            f"{ids.shape}"
        )
    return tuple(map(str, ids.tolist()))


def _classes(archive: _Archive, meta: _Meta) -> tuple[str, ...]:
    names = archive["classes"].tolist() if "classes" in archive.names else meta.get("class_names")
    return tuple(str(name) for name in names) if isinstance(names, list) else ()
