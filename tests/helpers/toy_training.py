"""A small network and three easy classes, for the tests of training."""

import torch

from rood.data.base import ImageSet
from rood.models import backbones
from rood.models.model import Model
from rood.models.wrap import wrap

SIDE = 8


def drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def new_model(seed: int = 0) -> Model:
    return wrap(
        backbones.create("small_cnn", classes=3, channels=1, seed=seed, width=4, features=8)
    )


def toy(n: int = 90, seed: int = 0) -> ImageSet:
    """Three classes: bright at the top, in the middle, at the bottom."""
    y = torch.arange(n) % 3
    x = torch.randint(0, 80, (n, 1, SIDE, SIDE), generator=drawn(seed))
    for i, label in enumerate(y.tolist()):
        x[i, 0, 3 * label : 3 * label + 2] += 150
    return ImageSet(name="toy", images=x.to(torch.uint8), labels=y, classes=("a", "b", "c"))
