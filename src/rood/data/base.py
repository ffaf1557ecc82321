"""The one form in which images enter rood, how they are divided, and what a source must do."""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypedDict

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from rood.data._ahead import ahead
from rood.errors import DataError, InputError
from rood.shapes import Images, Labels

Shape: TypeAlias = tuple[int, int, int]  # channels, height, width

# of a batch: with more, a CPU needs longer for each image, as memory is asked for again and again
QUICKEST = 2**21

# how `rood train` divides the images it is given; an audit of such a network divides them alike
SHARES = {"fit": 0.6, "calibrate": 0.1, "test": 0.3}
SPLIT_RULE = "by SHA-256 of each image's 8-bit pixels, so that equal images are on the same side"


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images as they were stored, labels where there are any, and what a reader must be told."""

    name: str
    images: UInt8[Tensor, "n c h w"] | Float[Tensor, "n c h w"] = field(repr=False)
    labels: Int[Tensor, " n"] | None = field(default=None, repr=False)  # -1: this one has none
    classes: tuple[str, ...] = ()  # names of the labels 0, 1, ...; empty where they have none
    notes: tuple[str, ...] = ()  # what was changed or left out while reading, one sentence each
    files: tuple[str, ...] = field(default=(), repr=False)  # one an image, or none at all

    def __post_init__(self) -> None:
        _check_images(self)
        _check_labels(self)
        if self.files and len(self.files) != len(self):
            raise InputError(
                f"expected {len(self)} file names in {self.name!r}, got {len(self.files)}"
            )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> Shape:
        """Channels, height and width of every image."""
        c, h, w = self.images.shape[1:]
        return c, h, w

    def take(self, which: Int[Tensor, " m"] | Bool[Tensor, " n"]) -> "ImageSet":
        """Some of the images, by their places or by a mask."""
        if which.dtype == torch.bool:
            if which.shape != (len(self),):
                raise InputError(f"expected a mask of {len(self)} images, got {tuple(which.shape)}")
            which = which.nonzero().flatten()
        which = which.long().cpu()
        if len(which) and not -len(self) <= int(which.min()) <= int(which.max()) < len(self):
            raise InputError(f"expected places below {len(self)}, got {int(which.max())}")
        labels = None if self.labels is None else self.labels[which]
        files = tuple(self.files[i] for i in which.tolist()) if self.files else ()
        return replace(self, images=self.images[which], labels=labels, files=files)

    def pixels(self, device: str | torch.device = "cpu") -> Images:
        """All images as float32 in [0, 1]."""
        return _unit(self.images.to(device))

    def batches(self, size: int, device: str | torch.device = "cpu") -> "Batches":
        """The images in order, at most `size` at a time, with -1 for labels that are not known."""
        if size < 1:
            raise InputError(f"expected at least one image a batch, got {size}")
        return Batches(self, size, torch.device(device))

    def fingerprint(self) -> str:
        """SHA-256 of shape, type, pixels and labels; names and notes do not count."""
        head = f"{tuple(self.images.shape)} {self.images.dtype} {self.labels is not None}"
        digest = hashlib.sha256(head.encode())
        for image in self.images.cpu().contiguous().numpy():
            digest.update(image.tobytes())
        if self.labels is not None:
            digest.update(self.labels.cpu().numpy().astype("<i8").tobytes())
        return digest.hexdigest()

    def hashes(self, purpose: str = "") -> NDArray[np.uint64]:
        """One number an image, from its size and 8-bit pixels alone; others for each purpose."""
        head = f"{purpose}{self.shape}".encode()
        pixels = _eight_bit(self.images).cpu().contiguous().numpy()
        digests = (hashlib.sha256(head + image.tobytes()).digest()[:8] for image in pixels)
        return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)

    def places(self, purpose: str = "") -> NDArray[np.float64]:
        """A number in [0, 1) an image, from its content alone: where `split` cuts."""
        return (self.hashes(purpose) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def to_shape(self, shape: Shape | None) -> "ImageSet":
        """The same images in another size or number of channels, with a note that says so."""
        if shape is None or shape == self.shape:
            return self
        check_shape(shape)
        x = self.images.new_empty((len(self), *shape))
        size = at_once(max(shape, self.shape, key=math.prod))
        for part in (slice(i, i + size) for i in range(0, len(self), size)):
            x[part] = _converted(self.images[part], shape)  # all at once they are large as floats
        note = f"converted from {_size(self.shape)} to {_size(shape)}"
        return replace(self, images=x, notes=(*self.notes, note))

    def thin(self, limit: int | None) -> "ImageSet":
        """At most `limit` images, evenly spaced so that no class is lost, and a note about it."""
        which = spaced(len(self), limit)
        if len(which) == len(self):
            return self
        note = f"used {len(which)} of {len(self)} images, evenly spaced"
        return replace(self.take(torch.tensor(which)), notes=(*self.notes, note))


@dataclass(frozen=True)
class Batches:
    """The batches of an image set; can be gone through again."""

    images: ImageSet
    size: int
    device: torch.device

    def __iter__(self) -> Iterator[tuple[Images, Labels]]:
        read = map(self._read, range(0, len(self.images), self.size))
        return read if self.device.type == "cpu" else ahead(read)

    def _read(self, start: int) -> tuple[Images, Labels]:
        part = slice(start, start + self.size)
        x, y = self.images.images[part], self.images.labels
        y = torch.full((len(x),), -1) if y is None else y[part].long()
        return _unit(_sent(x, self.device)), _sent(y, self.device)


class LoadOptions(TypedDict, total=False):
    """The keyword arguments of `Source.load`."""

    shape: Shape | None
    limit: int | None
    skip_bad: bool


class Source(ABC):
    """Where images come from: one file in this folder for each kind."""

    @abstractmethod
    def load(
        self,
        argument: str,
        *,
        shape: Shape | None = None,
        limit: int | None = None,
        skip_bad: bool = False,
    ) -> ImageSet:
        """Read what `argument` names.

        shape: what the images are converted to; None keeps their own.
        limit: at most so many, evenly spaced over what is there.
        skip_bad: leave out files that cannot be read, and say so in the notes.
        """


def split(images: ImageSet, purpose: str = "", **shares: float) -> dict[str, ImageSet]:
    """Divide by content alone: equal images stay together, and new ones never move the others.

    A part that is divided again needs another `purpose`: the same would cut it where it was cut.
    """
    if not shares or not all(s > 0 for s in shares.values()):  # a NaN is not > 0 either
        raise InputError(f"expected shares above 0, got {shares}")
    if not math.isclose(sum(shares.values()), 1, abs_tol=1e-9):
        raise InputError(f"expected shares that sum to 1, got {shares}")
    bounds = np.cumsum(list(shares.values()))[:-1]  # the last part ends at 1, whatever the rounding
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
    """The same image must not both teach and test."""
    shared = int(np.isin(b.hashes(), a.hashes()).sum())
    if shared:
        raise DataError(
            f"expected {what} and {other} to share no image, got {shared} of {len(b)} in both: "
            "leave them out of one"
        )


def spaced(n: int, limit: int | None) -> list[int]:
    """Places of at most `limit` of n things, evenly spaced."""
    if limit is not None and limit < 1:
        raise InputError(f"expected a limit of at least 1 image, got {limit}")
    if limit is None or limit >= n:
        return list(range(n))
    return [i * n // limit for i in range(limit)]


def at_once(shape: Shape, most: int = 256) -> int:
    """Images of a batch that a CPU gets through quickly, and that take little memory."""
    return max(1, min(most, QUICKEST // math.prod(shape)))


def check_shape(shape: Shape) -> None:
    """Refuse what no image can have."""
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
    return values.pin_memory().to(device, non_blocking=True)  # or it waits for what the GPU does


def _unit(images: Tensor) -> Images:
    x = images.to(torch.float32)
    # by a tensor: by a number, a GPU multiplies with 1/255, and half the levels end otherwise
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
            f"divide 8-bit values by 255, and do not normalise"
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
            f"expected labels from 0 {top} in {images.name!r} (-1 where there is none), "
            f"got {int(y.min())} to {int(y.max())}"
        )
