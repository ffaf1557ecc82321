"""What a training run depends on besides its data and objective; a TOML file can hold it."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rood.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Augment:
    """What is done to each training image, anew in every epoch."""

    shift: int = 0  # pixels, at most, in each direction; what enters is black
    flip: bool = False  # left and right, for half of the images
    augmix: float = 0.0  # severity of AugMix's chains, at most 10; its paper has 3; 0: none

    def __post_init__(self) -> None:
        if self.shift < 0:
            raise InputError(f"expected a shift of 0 or more pixels, got {self.shift}")
        if not 0 <= self.augmix <= 10:
            raise InputError(f"expected an augmix severity from 0 to 10, got {self.augmix}")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How steps are taken; the learning rate rises in a warm-up, then falls as a cosine."""

    epochs: int = 30
    batch_size: int = 128  # images a step, of all processes together
    outlier_batch: int | None = None  # outliers a step; None: as many as images
    optimizer: Literal["sgd", "adam"] = "sgd"  # with Nesterov momentum; Adam for energies and GANs
    lr: float = 0.1
    warmup: float = 0.0  # share of all steps
    momentum: float = 0.9
    weight_decay: float = 5e-4
    ema: float = 0.0  # evaluate and deliver a running mean of the weights that decays so; 0: none
    augment: Augment = field(default_factory=Augment)
    seed: int = 0
    half: bool = True  # on a GPU: bfloat16 where torch holds it safe; else float32 and TF32
    compile: bool = False  # torch.compile the network: minutes at the start, faster steps
    graph: bool = False  # on a GPU: record the passes of a step once and replay them, see graphed
    save_every: int = 1  # epochs between two states on disk; the last is always kept
    robust: int = 0  # held-out images that are attacked after each epoch; 0: none

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
        """The learning rate after this share of all steps."""
        if share < self.warmup:
            return self.lr * share / self.warmup
        return self.lr * (1 + math.cos(math.pi * (share - self.warmup) / (1 - self.warmup))) / 2

    def identity(self) -> dict[str, Any]:
        """All that the weights depend on; what is kept or measured meanwhile may change."""
        return {k: v for k, v in asdict(self).items() if k not in ("save_every", "robust")}


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise InputError(f"expected {name} > 0, got {value}")
