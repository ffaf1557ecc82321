"""The network through torch.compile, while it is trained and not beyond."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from rood.models.model import Model

BACKEND = "inductor"
GRAPHS = 64  # of all parts together: for torch they are one function with several versions
MODE: str | None = None  # as torch.compile has it: None, "reduce-overhead", "max-autotune"


class Compiled:
    """Every part of a network that has parts itself and does not hold the head.

    The head stays as it is: the model listens to what it is given, which a compiled layer does not
    let it do. One graph for each shape and mode, which training has few of.
    """

    def __init__(self, model: Model, wanted: bool) -> None:
        parts = _without(model.head, model.net) if wanted else ()
        self.calls = [(part, _compiled(part)) for part in parts]

    @contextmanager
    def on(self) -> Iterator[None]:
        """Compiled inside the block, as before after it."""
        for part, call in self.calls:
            part._compiled_call_impl = call
        try:
            with torch._dynamo.config.patch(recompile_limit=GRAPHS):
                yield
        finally:
            for part, _ in self.calls:
                part._compiled_call_impl = None


def _compiled(part: nn.Module) -> Callable[..., Any]:
    # in a function of ours: torch takes the methods of its own layers for not worth compiling
    def call(*inputs: Any) -> Any:
        return part._call_impl(*inputs)

    return torch.compile(call, dynamic=False, backend=BACKEND, mode=MODE)


def _without(head: nn.Module, net: nn.Module) -> Iterator[nn.Module]:
    for child in net.children():
        inside = set(child.modules())
        if head in inside:
            yield from _without(head, child)
        elif len(inside) > 1:
            yield child
