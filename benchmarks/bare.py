"""What everything is measured against: the network alone, in the memory layout it is fastest in."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks.measure import Call, seconds
from rood.models.model import Model

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
