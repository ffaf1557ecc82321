"""Images as smooth as photographs, and packs of them."""

import numpy as np
import torch
from torch.nn.functional import interpolate

from rood.data.base import ImageSet


def pictures(n=40, seed=0, side=16, **rest):
    """Smooth and not too bright, as photographs are."""
    rng = np.random.default_rng(seed)
    small = rng.uniform(0, 190, (n, 1, 4, 4)) + rng.uniform(0, 60, (n, 3, 4, 4))
    large = interpolate(torch.from_numpy(small), (side, side), mode="bilinear")
    return ImageSet("pictures", large.round().to(torch.uint8), **rest)


def packed(path, images, classes=None):
    """The images as an .npz file."""
    more = {} if images.labels is None else {"labels": images.labels.numpy()}
    more |= {} if classes is None else {"classes": np.array(classes)}
    np.savez(path, images=images.images.numpy(), **more)
    return f"npz:{path}"
