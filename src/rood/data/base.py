"""Image sets, how they are split, and what a source implements."""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TypeAlias, TypeVar, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from rood.errors import DataError, InputError
from rood.shapes import Images, Labels

T = TypeVar("T")
Shape: TypeAlias = tuple[int, int, int]  # channels, height, width

# pixels per batch: beyond it, a CPU takes longer per image, since it allocates memory repeatedly
QUICKEST = 2**21

# how `rood train` splits its images; an audit of a network that it trained splits them alike
SHARES = {"fit": 0.6, "calibrate": 0.1, "test": 0.3}
FOLDER = "folder"  # groups by the parent folder of each image
SPLIT_RULE = "by SHA-256 of each image's 8-bit pixels, so that equal images are on the same side"


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """Images, optional labels, and notes on how they were read.

    Parameters
    ----------
    name : str
        Appears in tables and messages.
    images : torch.Tensor
        Shape (n, c, h, w), c = 1 or 3: uint8, or floats in [0, 1]. Not normalised.
    labels : torch.Tensor, optional
        Shape (n,), whole numbers; -1 for an unlabelled image.
    classes : tuple of str
        Names of the labels 0, 1, ...; empty if unknown.
    notes : tuple of str
        What reading has changed or left out, one sentence each.
    files : tuple of str
        One name per image, or empty.
    groups : tuple of str
        One id per image, such as the video it is from, or empty. Images of a group are not
        independent: `split` keeps them together, and an audit's intervals resample groups.

    Raises
    ------
    InputError
        If shapes, types or ranges are not as above.

    Examples
    --------
    >>> import torch
    >>> from rood.data import ImageSet
    >>> images = ImageSet("noise", torch.rand(10, 3, 8, 8), torch.arange(10) % 2, ("cat", "dog"))
    >>> images
    <ImageSet 'noise': 10 images of shape (3, 8, 8), float32, labelled, 2 classes>
    >>> len(images.thin(4)), images.take(images.labels == 1).pixels().shape
    (4, torch.Size([5, 3, 8, 8]))
    """

    name: str
    images: UInt8[Tensor, "n c h w"] | Float[Tensor, "n c h w"]
    labels: Int[Tensor, " n"] | None = None
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_images(self)
        _check_labels(self)
        if self.files and len(self.files) != len(self):
            raise InputError(
                f"expected {len(self)} file names in {self.name!r}, got {len(self.files)}"
            )
        _check_groups(self)

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        known = 0 if self.labels is None else int((self.labels >= 0).sum())
        labelled = {0: "unlabelled", len(self): "labelled"}.get(known, f"{known} labelled")
        dtype = str(self.images.dtype).removeprefix("torch.")
        parts = [f"{len(self)} images of shape {self.shape}", dtype, labelled]
        parts += [f"{len(self.classes)} classes"] if self.classes else []
        parts += [f"{len(set(self.groups))} groups"] if self.groups else []
        parts += [f"notes: {'; '.join(self.notes)}"] if self.notes else []
        return f"<ImageSet {self.name!r}: {', '.join(parts)}>"

    @property
    def shape(self) -> Shape:
        """Channels, height and width of every image."""
        c, h, w = self.images.shape[1:]
        return c, h, w

    def take(self, which: Int[Tensor, " m"] | Bool[Tensor, " n"]) -> "ImageSet":
        """Some of the images, by index or mask."""
        if which.dtype == torch.bool:
            if which.shape != (len(self),):
                raise InputError(f"expected a mask of {len(self)} images, got {tuple(which.shape)}")
            which = which.nonzero().flatten()
        which = which.long().cpu()
        if len(which) and not -len(self) <= int(which.min()) <= int(which.max()) < len(self):
            raise InputError(f"expected indices below {len(self)}, got {int(which.max())}")
        labels = None if self.labels is None else self.labels[which]
        files, groups = (
            tuple(words[i] for i in which.tolist()) if words else ()
            for words in (self.files, self.groups)
        )
        return replace(self, images=self.images[which], labels=labels, files=files, groups=groups)

    def pixels(self, device: str | torch.device = "cpu") -> Images:
        """All images as float32 in [0, 1]."""
        return _unit(self.images.to(device))

    def batches(self, size: int, device: str | torch.device = "cpu") -> "Batches":
        """Batches (x, y) of at most `size` images in order, y = -1 for unlabelled images."""
        if size < 1:
            raise InputError(f"expected at least one image per batch, got {size}")
        return Batches(self, size, torch.device(device))

    def fingerprint(self) -> str:
        """SHA-256 of shape, dtype, pixels and labels, without names and notes."""
        head = f"{tuple(self.images.shape)} {self.images.dtype} {self.labels is not None}"
        digest = hashlib.sha256(head.encode())
        for image in self.images.cpu().contiguous().numpy():
            digest.update(image.tobytes())
        if self.labels is not None:
            digest.update(self.labels.cpu().numpy().astype("<i8").tobytes())
        return digest.hexdigest()

    def hashes(self, purpose: str = "") -> NDArray[np.uint64]:
        """One hash per image, of its shape, its 8-bit pixels and the purpose."""
        head = f"{purpose}{self.shape}".encode()
        pixels = _eight_bit(self.images).cpu().contiguous().numpy()
        return _numbers(hashlib.sha256(head + image.tobytes()) for image in pixels)

    def places(self, purpose: str = "") -> NDArray[np.float64]:
        """One number in [0, 1) per image, a hash of its group or content: `split` divides by it."""
        hashes = _hashed(purpose, self.groups) if self.groups else self.hashes(purpose)
        return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def label_numbers(self) -> NDArray[np.int64]:
        """The label of every image; -1 where there is none."""
        if self.labels is None:
            return np.full(len(self), -1, np.int64)
        return self.labels.cpu().numpy().astype(np.int64)

    def group_numbers(self) -> NDArray[np.int64] | None:
        """The group of each image as a number from 0; None without groups."""
        if not self.groups:
            return None
        numbered = {group: i for i, group in enumerate(dict.fromkeys(self.groups))}
        return np.array([numbered[group] for group in self.groups], dtype=np.int64)

    def to_shape(self, shape: Shape | None) -> "ImageSet":
        """The images resized and converted to `shape`, with a note."""
        if shape is None or shape == self.shape:
            return self
        check_shape(shape)
        x = self.images.new_empty((len(self), *shape))
        size = at_once(max(shape, self.shape, key=math.prod))
        for part in (slice(i, i + size) for i in range(0, len(self), size)):
            x[part] = _converted(
                self.images[part], shape
            )  # in parts: floats take four times the memory
        note = f"converted from {_size(self.shape)} to {_size(shape)}"
        return replace(self, images=x, notes=(*self.notes, note))

    def thin(self, limit: int | None) -> "ImageSet":
        """At most `limit` images, evenly spaced, with a note."""
        which = spaced(len(self), limit)
        if len(which) == len(self):
            return self
        notes = (*self.notes, *limit_note(len(which), len(self)))
        return replace(self.take(torch.tensor(which)), notes=notes)


@dataclass(frozen=True)
class Batches:
    """The batches of an image set; can be iterated repeatedly."""

    images: ImageSet
    size: int
    device: torch.device

    def __iter__(self) -> Iterator[tuple[Images, Labels]]:
        read = map(self._read, range(0, len(self.images), self.size))
        return read if self.device.type == "cpu" else prefetched(read)

    def _read(self, start: int) -> tuple[Images, Labels]:
        part = slice(start, start + self.size)
        x, y = self.images.images[part], self.images.labels
        y = torch.full((len(x),), -1) if y is None else y[part].long()
        return _unit(_sent(x, self.device)), _sent(y, self.device)


@dataclass(frozen=True)
class LoadOptions:
    """The options of `Source.load`."""

    shape: Shape | None = None  # convert the images to it; None keeps their own
    limit: int | None = None  # at most so many images, evenly spaced
    skip_bad: bool = False  # skip unreadable files and count them in the notes
    groups: str | None = None  # FOLDER, or the column or array that has the group of each image

    def __post_init__(self) -> None:
        if self.shape is not None:
            check_shape(self.shape)
        if self.limit is not None and self.limit < 1:
            raise InputError(f"expected a limit of at least 1 image, got {self.limit}")

    def applied(self, images: ImageSet) -> ImageSet:
        """The images with the limit, shape and groups, as far as reading has not seen to these."""
        images = images.thin(self.limit).to_shape(self.shape)
        if self.groups is None or images.groups:
            return images
        return _by_folder(images, self.groups)


class Source(ABC):
    """A kind of image source: one file in this folder per kind."""

    @final
    def load(
        self,
        argument: str,
        *,
        shape: Shape | None = None,
        limit: int | None = None,
        skip_bad: bool = False,
        groups: str | None = None,
    ) -> ImageSet:
        """Read the images that `argument` names, in the shape and number asked for."""
        options = LoadOptions(shape, limit, skip_bad, groups)
        return options.applied(self.read(argument, options))

    @abstractmethod
    def read(self, argument: str, options: LoadOptions) -> ImageSet:
        """Read what `argument` names; `load` applies the limit and shape that this ignores."""


def split(images: ImageSet, purpose: str = "", **shares: float) -> dict[str, ImageSet]:
    """Divide an image set at random by a hash of each image's content.

    The division is reproducible, equal images fall on the same side, and adding images moves none
    of the others. Where images have groups, it goes by these, and each group is on one side.

    Parameters
    ----------
    images : ImageSet
    purpose : str
        Part of the hash. To split a part again, use another purpose than before.
    **shares : float
        Name and share of each part, above 0 and summing to 1.

    Returns
    -------
    dict of str to ImageSet
        The parts by name; each `ImageSet.name` has the part's name appended.

    Raises
    ------
    InputError
        If the shares are not as above.
    DataError
        If a part is empty.

    Examples
    --------
    >>> from rood import data
    >>> parts = data.split(data.load("procedural:noise,n=200"), fit=0.8, test=0.2)
    >>> {name: len(part) for name, part in parts.items()}
    {'fit': 149, 'test': 51}
    """
    if not shares or not all(s > 0 for s in shares.values()):  # refuses NaN too
        raise InputError(f"expected shares above 0, got {shares}")
    if not math.isclose(sum(shares.values()), 1, abs_tol=1e-9):
        raise InputError(f"expected shares that sum to 1, got {shares}")
    bounds = np.cumsum(list(shares.values()))[:-1]  # without the last, which is 1 up to rounding
    part = torch.from_numpy(np.searchsorted(bounds, images.places(purpose), side="right"))
    parts = {}
    for i, (name, share) in enumerate(shares.items()):
        parts[name] = replace(images.take(part == i), name=f"{images.name}/{name}")
        if not len(parts[name]):
            raise DataError(
                f"expected images in every part of {images.name!r}, got none in {name!r} "
                f"({share:g} of {len(images)} images): give more images or a larger share"
            )
    return parts


def refuse_overlap(a: ImageSet, b: ImageSet, what: str, other: str) -> None:
    """Refuse two sets that share an image, such as training and test images."""
    shared = int(np.isin(b.hashes(), a.hashes()).sum())
    if shared:
        raise DataError(
            f"expected {what} and {other} to share no image, got {shared} of {len(b)} in both: "
            "remove them from one"
        )


def spaced(n: int, limit: int | None) -> list[int]:
    """Indices of at most `limit` of n items, evenly spaced."""
    if limit is not None and limit < 1:
        raise InputError(f"expected a limit of at least 1 image, got {limit}")
    if limit is None or limit >= n:
        return list(range(n))
    return [i * n // limit for i in range(limit)]


def limit_note(n: int, total: int, order: str = "") -> list[str]:
    """The note on a limit that was applied."""
    return [f"used {n} of {total} images, evenly spaced{order}"] if n < total else []


def prefetched(items: Iterator[T]) -> Iterator[T]:
    """The same items; a thread prepares the next one while the caller uses the current one."""
    end = object()
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, items, end)
        while (now := coming.result()) is not end:
            coming = reader.submit(next, items, end)
            yield now  # type: ignore[misc]  # never the end marker


def at_once(shape: Shape, most: int = 256) -> int:
    """Batch size at which a CPU is fast and memory small."""
    return max(1, min(most, QUICKEST // math.prod(shape)))


def _by_folder(images: ImageSet, groups: str) -> ImageSet:
    """The parent folder of each image as its group."""
    if groups != FOLDER or not images.files:
        wanted = "files in folders" if groups == FOLDER else f"a column or array {groups!r}"
        raise DataError(
            f"expected {wanted} to group the images of {images.name!r} by, got none: "
            "name another or leave the groups of this set out"
        )
    return replace(images, groups=tuple(str(PurePosixPath(f).parent) for f in images.files))


def _hashed(purpose: str, words: Iterable[str]) -> NDArray[np.uint64]:
    return _numbers(hashlib.sha256(f"{purpose}\n{word}".encode()) for word in words)


def _numbers(digests: Iterable["hashlib._Hash"]) -> NDArray[np.uint64]:
    first = b"".join(digest.digest()[:8] for digest in digests)
    return np.frombuffer(first, dtype="<u8").astype(np.uint64)


def check_shape(shape: Shape) -> None:
    """Refuse shapes that images cannot have."""
    if len(shape) != 3 or shape[0] not in (1, 3) or min(shape) < 1:
        raise InputError(f"expected a shape (1 or 3, height, width), got {shape}")


def _converted(images: Tensor, shape: Shape) -> Tensor:
    x = images.float()
    if shape[0] == 1 and x.shape[1] == 3:
        x = (x * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(dim=1, keepdim=True)
    elif shape[0] == 3:
        x = x.expand(-1, 3, -1, -1)
    if shape[1:] != x.shape[2:]:
        x = interpolate(x, shape[1:], mode="bilinear", antialias=True)
    return x.round().clamp(0, 255) if images.dtype == torch.uint8 else x.clamp(0, 1)


def _size(shape: Shape) -> str:
    return f"{shape[1]}x{shape[2]} {'grey' if shape[0] == 1 else 'colour'}"


def _sent(values: Tensor, device: torch.device) -> Tensor:
    if device.type != "cuda" or values.is_cuda:
        return values.to(device)
    return values.pin_memory().to(
        device, non_blocking=True
    )  # pinned: the copy does not wait for the GPU


def _unit(images: Tensor) -> Images:
    x = images.to(torch.float32)
    # by a tensor: for a number, CUDA multiplies by 1/255, which rounds half of the values otherwise
    return x / torch.full((), 255.0, device=x.device) if images.dtype == torch.uint8 else x


def _eight_bit(images: Tensor) -> UInt8[Tensor, "n c h w"]:
    if images.dtype == torch.uint8:
        return images
    return (images.double() * 255).round().to(torch.uint8)


def _check_images(images: ImageSet) -> None:
    x = images.images
    if x.ndim != 4 or x.shape[1] not in (1, 3) or min(x.shape[1:]) < 1:
        raise InputError(
            f"expected images of shape (n, 1 or 3, height, width) in {images.name!r}, "
            f"got {tuple(x.shape)}"
        )
    if x.dtype == torch.uint8:
        return
    if not x.is_floating_point():
        raise InputError(f"expected uint8 or float images in {images.name!r}, got {x.dtype}")
    if not bool(((x >= 0) & (x <= 1)).all()):  # a NaN fails both
        raise InputError(
            f"expected pixels in [0, 1] in {images.name!r}, got [{x.min():.3g}, {x.max():.3g}]: "
            f"divide 8-bit values by 255, and do not normalise: the wrapped network does"
        )


def _check_groups(images: ImageSet) -> None:
    n, groups = len(images), images.groups
    if not groups:
        return
    known = sum(bool(g) for g in groups) if len(groups) == n else len(groups)
    if known != n:
        raise InputError(
            f"expected a group for each of the {n} images of {images.name!r}, got {known}: "
            "give an image without group an id of its own"
        )


def _check_labels(images: ImageSet) -> None:
    y, n = images.labels, len(images)
    if y is None:
        return
    if y.shape != (n,) or y.is_floating_point() or y.dtype == torch.bool:
        raise InputError(
            f"expected {n} whole-number labels in {images.name!r}, got {y.dtype} of "
            f"shape {tuple(y.shape)}"
        )
    if n and (int(y.min()) < -1 or (images.classes and int(y.max()) >= len(images.classes))):
        top = f"to {len(images.classes) - 1}" if images.classes else "up"
        raise InputError(
            f"expected labels from 0 {top} in {images.name!r} (-1 if unlabelled), "
            f"got {int(y.min())} to {int(y.max())}"
        )
