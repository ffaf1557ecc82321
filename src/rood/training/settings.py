"""Settings of a training run besides data and objective, as a TOML file may give them."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rood.errors import expect


@dataclass(frozen=True, kw_only=True)
class Augment:
    """Augmentation of each training image, drawn anew in every epoch."""

    shift: int = 0  # largest shift in pixels, each direction; filled with black
    flip: bool = False  # mirror half of the images horizontally
    augmix: float = 0.0  # severity of AugMix, at most 10 (its paper: 3); 0: none

    def __post_init__(self) -> None:
        expect(self.shift >= 0, "a shift of 0 or more pixels", self.shift)
        expect(0 <= self.augmix <= 10, "an augmix severity from 0 to 10", self.augmix)


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
        for name in ("epochs", "batch_size", "lr", "save_every", "outlier_batch"):
            value = getattr(self, name)
            expect(value is None or value > 0, f"{name} > 0", value)
        known = self.optimizer in ("sgd", "adam")
        expect(known, "the optimizer 'sgd' or 'adam'", repr(self.optimizer))
        expect(0 <= self.warmup < 1, "0 <= warmup < 1", self.warmup)
        expect(0 < self.momentum < 1, "0 < momentum < 1", self.momentum)
        expect(self.weight_decay >= 0, "weight_decay >= 0", self.weight_decay)
        expect(0 <= self.ema < 1, "0 <= ema < 1", self.ema)
        expect(self.robust >= 0, "robust >= 0 images", self.robust)

    def lr_at(self, share: float) -> float:
        """The learning rate after a share of all steps."""
        if share < self.warmup:
            return self.lr * share / self.warmup
        return self.lr * (1 + math.cos(math.pi * (share - self.warmup) / (1 - self.warmup))) / 2

    def identity(self) -> dict[str, Any]:
        """The settings that the weights depend on."""
        return {k: v for k, v in asdict(self).items() if k not in ("save_every", "robust")}
