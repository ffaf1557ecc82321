"""Which ID images fit the detectors, which set the threshold, and which test."""

from collections.abc import Mapping

import torch

from rood.data.base import SHARES, ImageSet, refuse_overlap, spaced, split
from rood.errors import InputError

# for networks of other people, which may have been trained on none of these images
OTHERS_SHARES = {"fit": 0.5, "calibrate": 0.2, "test": 0.3}


def divide(
    inside: ImageSet,
    train: ImageSet | None = None,
    calibrate: ImageSet | None = None,
    *,
    fit: bool = True,  # whether detectors are fitted, on a part of `inside` where `train` is None
    ours: bool = False,  # whether rood trained the network, on a part of such images
) -> dict[str, ImageSet]:
    """The parts "calibrate" and "test", and "fit" where detectors are fitted; none overlap."""
    if fit and train is None:
        if ours and inside.groups:
            raise InputError(
                "expected --train beside groups of ID images for networks that rood trained, got "
                "none: their training images were chosen one by one, not by group"
            )
        # ours were trained on a part of their images, which must stay the part that fits
        shares = SHARES if ours else OTHERS_SHARES
        if calibrate is None:
            return split(inside, "", **shares)
        share = shares["fit"]
        parts = split(inside, "", fit=share, test=1 - share)
    else:
        parts = {"test": inside}
        if calibrate is None:
            parts = split(inside, "threshold", calibrate=0.25, test=0.75)
        if train is not None:
            parts["fit"] = train
    if calibrate is not None:
        parts["calibrate"] = calibrate
        refuse_overlap(calibrate, parts["test"], "calibrate", "inside")
    if train is not None:
        refuse_overlap(train, parts["test"], "--train", "the test images")
        refuse_overlap(train, parts["calibrate"], "--train", "the threshold's images")
    return parts


def thinned(parts: Mapping[str, ImageSet], kept: Mapping[str, int]) -> dict[str, ImageSet]:
    """So many images of some parts, of each class about the same share."""
    return {name: _share(x, kept[name]) if name in kept else x for name, x in parts.items()}


def _share(images: ImageSet, n: int) -> ImageSet:
    if n >= len(images):
        return images
    order = torch.arange(len(images))
    if images.labels is not None:
        order = images.labels.cpu().argsort(stable=True)
    return images.take(order[torch.tensor(spaced(len(images), n))].sort().values)
