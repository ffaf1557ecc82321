"""SHA-256 of images, one by one, and of their list."""

import hashlib
import json
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rood.data.base import ImageSet
from rood.errors import InputError
from rood.threat import LEVELS, on_the_grid

Digests = NDArray[np.uint8]  # (n, 32)
SIZE = 32  # bytes of one


def levels(images: ImageSet) -> NDArray[np.uint8]:
    """The images in 8 bits, which lose nothing."""
    x = images.images
    if x.dtype != torch.uint8:
        if not bool(on_the_grid(x).all()):
            raise InputError(
                f"expected images of whole levels n/255 in {images.name!r} for a receipt, got "
                "others: give uint8 images"
            )
        x = (LEVELS * x.double()).round().byte()
    return x.cpu().contiguous().numpy()


def digests(images: ImageSet) -> Digests:
    """SHA-256 of shape and 8-bit pixels of every image."""
    head = f"{images.shape} ".encode()
    each = (hashlib.sha256(head + image.tobytes()).digest() for image in levels(images))
    return np.frombuffer(b"".join(each), np.uint8).reshape(-1, SIZE)


def of_list(each: Digests) -> str:
    """SHA-256 of a list of digests."""
    return hashlib.sha256(np.ascontiguousarray(each).tobytes()).hexdigest()


def of_value(value: Any) -> str:
    """SHA-256 of a value as JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
