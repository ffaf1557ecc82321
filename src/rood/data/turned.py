"""Images turned and mirrored."""

from dataclasses import replace

import torch
from torch import Tensor

from rood import data
from rood.data._spec import nested, whole
from rood.data.base import ImageSet, LoadOptions, Source
from rood.errors import expect

_FORM = "turned:SEED@SPEC"


class Turned(Source):
    """SEED@SPEC: the images of SPEC, each in one of the eight positions of a square.

    Turned by quarters and mirrored at random, by the seed and the content of the image; labels are
    kept. `spliced:3000@turned:0@SPEC` makes outliers whose halves come from turned images.
    """

    def read(self, argument: str, options: LoadOptions) -> ImageSet:
        own, spec = nested(argument, _FORM)
        seed = whole(own, 0, _FORM, argument)
        images = data.load(
            spec, shape=options.shape, skip_bad=options.skip_bad, groups=options.groups
        )
        images = images.thin(options.limit)
        _, h, w = images.shape
        expect(h == w, "square images to turn", f"{h}x{w} in {argument!r}")
        keys = (images.hashes(f"turned {seed}") % 8).astype("int64")
        return replace(images, images=turned(images.images, torch.from_numpy(keys)), files=())


def turned(x: Tensor, keys: Tensor) -> Tensor:  # (n, c, s, s) and (n,)
    """Images by `keys` from 0 to 7: quarter turns, and from 4 on mirrored as well."""
    found = torch.empty_like(x)
    for key in range(8):
        mine = keys == key
        some = torch.rot90(x[mine], key % 4, (2, 3))
        found[mine] = some.flip(3) if key >= 4 else some
    return found
