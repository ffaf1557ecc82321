"""What a training run depends on besides its data and objective; a TOML file can hold it."""

import math
from dataclasses import dataclass, field

from rood.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Augment:
    """What is done to each training image, anew in every epoch."""

    shift: int = 0  # pixels, at most, in each direction; what enters is black
    flip: bool = False  # left and right, for half of the images


@dataclass(frozen=True, kw_only=True)
class Settings:
    """SGD with Nesterov momentum; the learning rate rises in a warm-up, then falls as a cosine."""

    epochs: int = 30
    batch_size: int = 128
    outlier_batch: int | None = None  # outliers a step; None: as many as images
    lr: float = 0.1
    warmup: float = 0.0  # share of all steps
    momentum: float = 0.9
    weight_decay: float = 5e-4
    augment: Augment = field(default_factory=Augment)
    seed: int = 0

    def __post_init__(self) -> None:
        _positive(epochs=self.epochs, batch_size=self.batch_size, lr=self.lr)
        if self.outlier_batch is not None:
            _positive(outlier_batch=self.outlier_batch)
        if not (0 <= self.warmup < 1 and 0 < self.momentum < 1 and self.weight_decay >= 0):
            raise InputError(
                "expected 0 <= warmup < 1, 0 < momentum < 1 and weight_decay >= 0, got "
                f"{self.warmup}, {self.momentum} and {self.weight_decay}"
            )
        if self.augment.shift < 0:
            raise InputError(f"expected a shift of 0 or more pixels, got {self.augment.shift}")

    def lr_at(self, share: float) -> float:
        """The learning rate after this share of all steps."""
        if share < self.warmup:
            return self.lr * share / self.warmup
        return self.lr * (1 + math.cos(math.pi * (share - self.warmup) / (1 - self.warmup))) / 2


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise InputError(f"expected {name} > 0, got {value}")
