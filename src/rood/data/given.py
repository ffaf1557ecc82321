"""Images as Python code has them, made an `ImageSet`: tensors, arrays, data sets, specs."""

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler

from rood import data, shapes
from rood.data import hf
from rood.data._layout import channels_axis
from rood.data._reading import Reading, as_png
from rood.data.base import Batches, ImageSet, LoadOptions, Shape, limit_note, spaced
from rood.errors import InputError

IMAGES = ("image", "images", "img", "pixel_values", "x")  # usual keys of a row
LABELS = (*hf.LABELS, "y")
TWICE = 4  # images that are read again: a random transform gives others
FIT = 128  # images per batch
WHOLE = (ImageSet, Tensor, np.ndarray, tuple, str, os.PathLike, Dataset)  # not batches


@runtime_checkable
class Rows(Protocol):
    """A data set of the library datasets."""

    features: Any

    def __iter__(self) -> Iterator[Any]:
        """Its rows."""


AnyImages: TypeAlias = (
    ImageSet
    | Tensor
    | NDArray[Any]
    | tuple[Any, Any]
    | Dataset[Any]
    | DataLoader[Any]
    | Rows
    | str
    | os.PathLike[str]
)


def image_set(
    images: object,
    name: str = "images",
    *,
    shape: Shape | None = None,
    limit: int | None = None,
    skip_bad: bool = False,
    groups: str | None = None,
) -> ImageSet:
    """Make an `ImageSet` of images in any form that Python code has them in.

    Parameters
    ----------
    images
        An `ImageSet`; a tensor or array (n, c, h, w), (n, h, w, c) or (n, h, w), uint8 or float in
        [0, 1]; (images, labels); a torch `Dataset` or `DataLoader`; a data set of the library
        datasets; a path; or a spec as for `rood.data.load`.
    name
        Of the set, where it has none; appears in tables and messages.
    shape, limit, skip_bad, groups
        As for `rood.data.load`.

    Examples
    --------
    >>> from rood.data.given import image_set
    >>> image_set((np.zeros((5, 8, 8, 3), np.uint8), [0, 1, 0, 1, 0]), "mine")
    <ImageSet 'mine': 5 images of shape (3, 8, 8), uint8, labelled>
    """
    if isinstance(images, str | os.PathLike):
        spec = os.fspath(images)
        return data.load(spec, shape=shape, limit=limit, skip_bad=skip_bad, groups=groups)
    options = LoadOptions(shape, limit, skip_bad, groups)
    if hf.is_data_set(images):
        found = hf.image_set(images, name, options)
    elif isinstance(images, DataLoader | Dataset):
        with torch.random.fork_rng(devices=[]):  # a loader draws from the caller's generator
            if isinstance(images, DataLoader):
                found = _loaded(images, name, options)
            else:
                found = _items(images, name, options)
    else:
        found = _in_memory(images, name)
    return options.applied(found)


AnyBatches: TypeAlias = AnyImages | Iterable[Any]  # what to fit on: all at once, or by batches


def batches_of(images: object, device: torch.device) -> shapes.Batches:
    """Batches (x, y) of images in any form; what yields batches already is passed on."""
    if isinstance(images, Batches):
        return images
    if isinstance(images, DataLoader):
        return _Pairs(images, device)
    if isinstance(images, WHOLE) or hf.is_data_set(images):
        return image_set(images, "training images").batches(FIT, device)
    if not isinstance(images, Iterable):
        raise _not_images(images, "training images")
    return _Pairs(images, device)


class _Pairs:
    """Batches (x, y) of something that yields them, images alone or rows."""

    def __init__(self, batches: Iterable[Any], device: torch.device) -> None:
        self.batches = batches
        self.device = device
        self.used = False

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self.used and isinstance(self.batches, Iterator):
            kind = type(self.batches).__name__
            raise InputError(
                f"expected batches that can be iterated twice, got a {kind} that is used up: "
                "give a list or a DataLoader"
            )
        self.used = True
        for i, batch in enumerate(self.batches):
            x, y = _pair(batch, f"batch {i}")
            if not isinstance(x, Tensor):
                raise _not_images(x, f"batch {i} of the training images")
            y = torch.full((len(x),), -1) if y is None else _labels(y, f"batch {i}")
            yield x.to(self.device), y.to(self.device)


def _not_images(given: object, name: str) -> InputError:
    kind = given.__name__ if isinstance(given, type) else type(given).__name__
    hint = {
        "NoneType": "",
        "list": ": torch.stack(...) makes one tensor of many",
        "Image": ": give a data set or a folder of images",
        "DatasetDict": f": name one split, such as {name}=...['test']",
        "IterableDatasetDict": f": name one split, such as {name}=...['test']",
    }.get(kind, "")
    return InputError(
        f"expected images for {name}, as a tensor or array (n, c, h, w) in [0, 1], (images, "
        f"labels), a Dataset, a DataLoader, a path or a spec, got {kind}{hint}"
    )


# --- tensors and arrays


def _in_memory(images: object, name: str) -> ImageSet:
    if isinstance(images, ImageSet):
        return images
    if isinstance(images, tuple):
        if len(images) != 2:
            raise InputError(
                f"expected (images, labels) for {name}, got a tuple of {len(images)}: "
                "several sets go into a list"
            )
        x, y = _pixels(images[0], name), images[1]
        y = None if y is None else _labels(y, name).cpu()
        if y is not None and len(y) != len(x):
            raise InputError(
                f"expected one label per image in {name!r}, got {len(x)} images and {len(y)} labels"
            )
        return ImageSet(name, x, y)
    return ImageSet(name, _pixels(images, name))


def _pixels(images: object, name: str) -> Tensor:
    """Channels first; the values and range are checked by `ImageSet`."""
    if isinstance(images, np.ndarray):
        if images.dtype.kind not in "uifb":
            raise InputError(
                f"expected numbers as pixels of {name!r}, got an array of {images.dtype}: "
                "are the images of different sizes?"
            )
        x = torch.tensor(images.astype(np.float32) if images.dtype.kind == "f" else images)
    elif isinstance(images, Tensor):
        x = images.detach().cpu()
    else:
        raise _not_images(images, name)
    if x.dtype != torch.uint8 and not x.is_floating_point():
        kind = str(x.dtype).removeprefix("torch.")
        raise InputError(
            f"expected uint8 or float images in {name!r}, got {kind}: convert them to uint8"
        )
    if x.ndim == 3 and x.shape[0] in (1, 3):
        raise InputError(
            f"expected a batch of images in {name!r}, got one of shape {tuple(x.shape)}: "
            "give images[None]"
        )
    if 0 in x.shape[:1]:
        raise InputError(f"expected images in {name!r}, got none: shape {tuple(x.shape)}")
    if x.ndim == 4 and x.shape[1] in (1, 3) and isinstance(images, Tensor):
        return x  # as every tensor of images in torch
    axis = channels_axis(x.shape, repr(name))
    return x[:, None] if axis is None else x.movedim(axis, 1)


def _labels(labels: object, name: str) -> Tensor:
    y = labels if isinstance(labels, Tensor) else np.asarray(labels)
    kind = str(y.dtype).removeprefix("torch.")
    if y.ndim != 1 or not kind.startswith(("int", "uint")):
        raise InputError(
            f"expected one class number per image as the labels of {name!r}, got {kind} of shape "
            f"{tuple(y.shape)}: take argmax of one-hot labels; several image sets go into a list"
        )
    return y.detach() if isinstance(y, Tensor) else torch.tensor(y.astype(np.int64))


# --- data sets, item by item, and loaders, batch by batch


def _items(found: Dataset[Any], name: str, options: LoadOptions) -> ImageSet:
    if isinstance(found, IterableDataset):
        return _stacked(list(islice(found, options.limit)), name, options, ())
    n = _length(found, name)
    places = spaced(n, options.limit)
    _refuse_random(found, name, places)
    notes = limit_note(len(places), n)
    return _stacked((found[i] for i in places), name, options, notes)


def _length(found: Any, name: str) -> int:
    try:
        n = len(found)
    except TypeError as e:
        raise InputError(
            f"expected a data set with a length for {name}, got {type(found).__name__} without "
            "__len__"
        ) from e
    if n == 0:
        raise InputError(f"expected images in {name!r}, got an empty data set")
    return n


def _refuse_random(found: Any, name: str, places: list[int]) -> None:
    """Refuse a data set that gives another image each time: results could not be repeated."""
    for i in places[:TWICE]:
        one, other = (_as_array(_pair(found[i], f"image {i} of {name!r}")[0]) for _ in range(2))
        if one is not None and other is not None and not np.array_equal(one, other):
            raise InputError(
                f"expected a data set that gives the same image at every reading for {name}, got "
                f"two versions of image {i}: leave random transforms such as RandomCrop out"
            )


def _as_array(image: object) -> NDArray[Any] | None:
    return None if isinstance(image, str) else np.asarray(image)


def _stacked(
    rows: Iterable[Any], name: str, options: LoadOptions, notes: Iterable[str]
) -> ImageSet:
    """The items of a data set as one set."""
    reading = Reading(options)
    parts, labels = list[ImageSet](), list[int]()
    for i, row in enumerate(rows):
        where = f"image {i} of {name!r}"
        image, label = _pair(row, where)
        y = _label(label, where)
        if isinstance(image, Image.Image):
            reading.add(as_png(image), y, name=f"{i:08d}", where=where)
            continue
        part = ImageSet(name, _pixels(_batch_of_one(image), where)).to_shape(options.shape)
        if parts and part.shape != parts[0].shape:
            raise InputError(
                f"expected images of one size in {name!r}, got {parts[0].shape} and {part.shape}: "
                "resize them in the data set"
            )
        parts.append(part)
        labels.append(y)
    if reading.pictures:
        return reading.image_set(name, repr(name), notes=notes)
    if not parts:
        raise InputError(f"expected images in {name!r}, got an empty data set")
    return _joined(parts, name, torch.tensor(labels), (*notes, *parts[0].notes))


def _loaded(loader: DataLoader[Any], name: str, options: LoadOptions) -> ImageSet:
    parts, labels = list[ImageSet](), list[Tensor]()
    enough = lambda n: options.limit is not None and n >= options.limit
    if not isinstance(loader.dataset, IterableDataset):
        _refuse_random(loader.dataset, name, list(range(min(TWICE, _length(loader.dataset, name)))))
    for i, batch in enumerate(_in_order(loader)):
        where = f"batch {i} of {name!r}"
        x, y = _pair(batch, where)
        parts.append(ImageSet(name, _pixels(x, where)).to_shape(options.shape))
        unlabelled = torch.full((len(parts[-1]),), -1)
        labels.append(unlabelled if y is None else _labels(y, where).cpu())
        if isinstance(loader.dataset, IterableDataset) and enough(sum(map(len, parts))):
            break
    if not parts:
        raise InputError(f"expected images in {name!r}, got a loader without batches")
    return _joined(parts, name, torch.cat(labels), parts[0].notes)


def _in_order(loader: DataLoader[Any]) -> DataLoader[Any]:
    """The loader, in the order of its data set where it shuffles."""
    if not isinstance(loader.sampler, RandomSampler) or loader.batch_size is None:
        return loader
    return DataLoader(
        loader.dataset,
        loader.batch_size,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
    )


def _joined(parts: list[ImageSet], name: str, labels: Tensor, notes: Iterable[str]) -> ImageSet:
    images = torch.cat([p.images for p in parts])
    known = bool((labels >= 0).any())
    return ImageSet(name, images, labels if known else None, notes=tuple(notes))


def _pair(row: Any, where: str) -> tuple[Any, Any]:
    """Image and label of a row: (image, label, ...), a mapping, or an image alone."""
    if isinstance(row, Mapping):
        found = [key for key in IMAGES if key in row]
        if not found:
            raise InputError(
                f"expected {', '.join(IMAGES)} among the keys of {where}, got "
                f"{', '.join(map(str, row))}: give (image, label)"
            )
        return row[found[0]], next((row[key] for key in LABELS if key in row), None)
    if isinstance(row, tuple | list):
        if not row:
            raise InputError(f"expected (image, label) as {where}, got nothing")
        return row[0], row[1] if len(row) > 1 else None
    return row, None


def _batch_of_one(image: object) -> object:
    if not isinstance(image, Tensor | np.ndarray) or image.ndim not in (2, 3):
        return image
    return image[None, None] if image.ndim == 2 else image[None]


def _label(label: object, where: str) -> int:
    """A class number; -1 where there is none."""
    if label is None:
        return -1
    single = isinstance(label, Tensor | np.ndarray | np.generic) and label.ndim == 0
    number = label.item() if single else label  # type: ignore[attr-defined]
    if isinstance(number, bool) or not isinstance(number, int):
        raise InputError(f"expected a class number as the label of {where}, got {label!r:.50}")
    return number
