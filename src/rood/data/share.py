"""A share of another source's images."""

import math

import torch

from rood.data._nested import divided, inner
from rood.data.base import ImageSet, Shape, Source
from rood.errors import DataError, InputError

_FORM = "share:FROM-TO@SPEC with 0 <= FROM < TO <= 1"


class Share(Source):
    """A share of another source's images, written FROM-TO@SPEC: 0-0.8@npz:FILE are four fifths.

    It is drawn by content as `split` draws it: shares that do not overlap have no image in common,
    and 0-0.6 is what `rood train` fits on where no held-out images are given.
    """

    def load(
        self,
        argument: str,
        *,
        shape: Shape | None = None,
        limit: int | None = None,
        skip_bad: bool = False,
    ) -> ImageSet:
        bounds, spec = divided(argument, _FORM)
        low, high = _bounds(bounds, argument)
        images = inner(spec, None, skip_bad)  # in its own shape, so that no shape moves an image
        place = images.places()
        part = images.take(torch.from_numpy((place >= low) & (place < high)))
        if not len(part):
            raise DataError(f"expected images in {argument!r}, got none of {len(images)}")
        return part.thin(limit).to_shape(shape)


def _bounds(text: str, argument: str) -> tuple[float, float]:
    low, _, high = text.partition("-")
    try:
        bounds = float(low), float(high)
    except ValueError:
        bounds = math.nan, math.nan
    if not 0 <= bounds[0] < bounds[1] <= 1:
        raise InputError(f"expected {_FORM}, got {argument!r}")
    return bounds
