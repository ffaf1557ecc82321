"""torch.compile of the network, for the time of training only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from rood.models.model import Model

BACKEND = "inductor"
GRAPHS = 64  # over all parts, which torch counts as versions of one function
MODE: str | None = None  # as torch.compile has it: None, "reduce-overhead", "max-autotune"


class Compiled:
    """Compiles every composite submodule that does not contain the head.

    The head stays eager: the model hooks its input, and compiled layers ignore hooks. There is one
    graph per shape and mode.
    """

    def __init__(self, model: Model, wanted: bool) -> None:
        parts = _without(model.head, model.net) if wanted else ()
        self.calls = [(part, _compiled(part)) for part in parts]

    @contextmanager
    def on(self) -> Iterator[None]:
        """Run compiled inside the block."""
        for part, call in self.calls:
            part._compiled_call_impl = call
        try:
            with torch._dynamo.config.patch(recompile_limit=GRAPHS):
                yield
        finally:
            for part, _ in self.calls:
                part._compiled_call_impl = None


def _compiled(part: nn.Module) -> Callable[..., Any]:
    # a function of ours: torch skips methods that are defined in its own modules
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
