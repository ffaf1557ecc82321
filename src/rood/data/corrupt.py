"""Images under a common corruption."""

from dataclasses import replace

import torch

from rood import data
from rood.corruptions.base import checked, corrupt
from rood.data._spec import nested, whole
from rood.data.base import ImageSet, LoadOptions, Source

_FORM = "corrupt:KIND:SEVERITY@SPEC"
BATCH = 64


class Corrupt(Source):
    """KIND:SEVERITY@SPEC: the images of SPEC under a corruption, such as fog:3@folder:val.

    Severities go from 1 to 5; kinds and strengths are those of `rood.corruptions`. Labels stay: the
    images show the same objects, so a detector that rejects them raises false alarms.
    """

    def read(self, argument: str, options: LoadOptions) -> ImageSet:
        own, spec = nested(argument, _FORM)
        kind, _, number = own.partition(":")
        severity = whole(number.strip(), 1, _FORM, argument)
        checked(kind.strip(), severity)
        images = data.load(
            spec, shape=options.shape, skip_bad=options.skip_bad, groups=options.groups
        ).thin(options.limit)
        return corrupted(images, kind.strip(), severity)


def corrupted(images: ImageSet, kind: str, severity: int) -> ImageSet:
    """The same images under a corruption, in 8 bits."""
    pixels = torch.cat(
        [
            (255 * corrupt(images.take(part).pixels(), kind, severity)).round().to(torch.uint8)
            for part in torch.arange(len(images)).split(BATCH)
        ]
    )
    return replace(images, images=pixels, files=())
