"""The bare network in its fastest memory layout, and what the scripts share: images, banks."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from benchmarks.measure import Call, seconds
from rood.data.base import ImageSet
from rood.detectors import KNN, Detector
from rood.models.model import Model
from rood.seeds import generator

LAYOUTS = (torch.contiguous_format, torch.channels_last)


def forward(model: Model, x: Tensor, batch: int | None = None) -> Call:
    """One pass over the images, batch by batch."""

    @torch.no_grad()
    def call(layout: torch.memory_format) -> None:
        for part in x.split(batch or len(x)):
            model.net(((part - model.mean) / model.std).contiguous(memory_format=layout))

    return _fastest(call)


def forward_backward(model: Model, x: Tensor, passes: int) -> Call:
    """So many passes there and back to the pixels, one after the other."""

    def call(layout: torch.memory_format) -> None:
        probe = x.detach().requires_grad_()
        normal = ((probe - model.mean) / model.std).contiguous(memory_format=layout)
        torch.autograd.grad(model.net(normal).amax(dim=1).sum(), probe)

    one = _fastest(call)

    def many() -> None:
        for _ in range(passes):
            one()

    return many


def _fastest(call: Callable[[torch.memory_format], None]) -> Call:
    best, least = LAYOUTS[0], float("inf")
    for layout in LAYOUTS:
        once = partial(call, layout)
        once()  # warm
        if (took := min(seconds(once) for _ in range(3))) < least:
            best, least = layout, took
    return partial(call, best)


class Normalise(nn.Module):
    """Pixels as the network wants them, for libraries that do not normalise."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


def random_images(n: int, name: str, classes: int = 0) -> ImageSet:
    """Noise of 3x32x32 pixels, with labels where there are classes."""
    source = generator(0, "benchmark", name)
    pixels = torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, generator=source)
    return ImageSet(name, pixels, torch.arange(n) % classes if classes else None)


def enlarge_bank(detector: Detector, n: int) -> None:
    """Give a KNN the bank of n training images."""
    if isinstance(detector, KNN):
        source = generator(0, "bank")
        rows = torch.randn(n, detector.model.head.in_features, generator=source)
        detector.bank_ = normalize(rows, dim=1)
