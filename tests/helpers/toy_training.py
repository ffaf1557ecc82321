"""A small network and three easy classes, for the tests of training."""

from collections.abc import Iterator
from pathlib import Path

import torch

from rood.data.base import ImageSet
from rood.models import backbones
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.training.loop import Epoch, train
from rood.training.objectives.cross_entropy import CrossEntropy
from rood.training.settings import Settings

SIDE = 8
QUICK = Settings(epochs=4, batch_size=30, lr=0.1)


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


def run(model: Model, settings: Settings, out: Path | None = None) -> Iterator[Epoch]:
    return train(model, CrossEntropy(), toy(), held_out=toy(30, 9), settings=settings, out=out)
