"""Settings of a training run besides data and objective, as a TOML file may give them."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rood.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Augment:
    """Augmentation of each training image, drawn anew in every epoch."""

    shift: int = 0  # largest shift in pixels, each direction; filled with black
    flip: bool = False  # mirror half of the images horizontally
    augmix: float = 0.0  # severity of AugMix, at most 10 (its paper: 3); 0: none

    def __post_init__(self) -> None:
        if self.shift < 0:
            raise InputError(f"expected a shift of 0 or more pixels, got {self.shift}")
        if not 0 <= self.augmix <= 10:
            raise InputError(f"expected an augmix severity from 0 to 10, got {self.augmix}")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Optimizer, schedule and precision; the learning rate warms up, then decays as a cosine."""

    epochs: int = 30
    batch_size: int = 128  # images per step, over all processes
    outlier_batch: int | None = None  # outliers per step; None: batch_size
    optimizer: Literal["sgd", "adam"] = "sgd"  # sgd: with Nesterov momentum
    lr: float = 0.1
    warmup: float = 0.0  # share of all steps, linear
    momentum: float = 0.9
    weight_decay: float = 5e-4
    ema: float = 0.0  # decay of the weights' EMA, which is evaluated and delivered; 0: none
    augment: Augment = field(default_factory=Augment)
    seed: int = 0
    half: bool = True  # on a GPU: bfloat16 autocast; False: float32 and TF32
    compile: bool = False  # torch.compile: minutes at the start, faster steps
    graph: bool = False  # on a GPU: replay each step as a CUDA graph, see `graphed`
    save_every: int = 1  # epochs between saved states; the last is always saved
    robust: int = 0  # held-out images attacked after each epoch; 0: none

    def __post_init__(self) -> None:
        _positive(
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            save_every=self.save_every,
        )
        if self.optimizer not in ("sgd", "adam"):
            raise InputError(f"expected the optimizer 'sgd' or 'adam', got {self.optimizer!r}")
        if self.outlier_batch is not None:
            _positive(outlier_batch=self.outlier_batch)
        if not (0 <= self.warmup < 1 and 0 < self.momentum < 1 and self.weight_decay >= 0):
            raise InputError(
                "expected 0 <= warmup < 1, 0 < momentum < 1 and weight_decay >= 0, got "
                f"{self.warmup}, {self.momentum} and {self.weight_decay}"
            )
        if not (0 <= self.ema < 1 and self.robust >= 0):
            raise InputError(
                f"expected 0 <= ema < 1 and robust >= 0 images, got {self.ema} and {self.robust}"
            )

    def lr_at(self, share: float) -> float:
        """The learning rate after a share of all steps."""
        if share < self.warmup:
            return self.lr * share / self.warmup
        return self.lr * (1 + math.cos(math.pi * (share - self.warmup) / (1 - self.warmup))) / 2

    def identity(self) -> dict[str, Any]:
        """The settings that the weights depend on."""
        return {k: v for k, v in asdict(self).items() if k not in ("save_every", "robust")}


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise InputError(f"expected {name} > 0, got {value}")
