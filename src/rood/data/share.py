"""A random share of another source's images."""

import math

import torch

from rood import data
from rood.data._spec import nested
from rood.data.base import ImageSet, LoadOptions, Source
from rood.errors import DataError, InputError

_FORM = "share:FROM-TO@SPEC with 0 <= FROM < TO <= 1"


class Share(Source):
    """FROM-TO@SPEC: a share of the images of SPEC; 0-0.8@npz:FILE is four fifths of them.

    Chosen by a hash of each image, or of its group, as in `split`: shares that do not overlap have
    no image in common, and 0-0.6 is what `rood train` trains on unless given held-out images.
    """

    def read(self, argument: str, options: LoadOptions) -> ImageSet:
        bounds, spec = nested(argument, _FORM)
        low, high = _bounds(bounds, argument)
        # in their own shape, since the hash depends on it
        images = data.load(spec, skip_bad=options.skip_bad, groups=options.groups)
        place = images.places()
        part = images.take(torch.from_numpy((place >= low) & (place < high)))
        if not len(part):
            raise DataError(f"expected images in {argument!r}, got none of {len(images)}")
        return part


def _bounds(text: str, argument: str) -> tuple[float, float]:
    low, _, high = text.partition("-")
    try:
        bounds = float(low), float(high)
    except ValueError:
        bounds = math.nan, math.nan
    if not 0 <= bounds[0] < bounds[1] <= 1:
        raise InputError(f"expected {_FORM}, got {argument!r}")
    return bounds
