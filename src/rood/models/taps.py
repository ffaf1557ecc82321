"""Look inside a network while it runs, without changing it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from torch import Tensor, nn


@dataclass
class Seen:
    """What one layer was given and what it returned, call by call."""

    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)


@contextmanager
def watching(layers: Sequence[nn.Module], order: list[int] | None = None) -> Iterator[list[Seen]]:
    """Record the input and output of each layer while the block runs; in `order`, who ran when.

    The hooks live only inside the block: nothing stays on the network that a copy of it, a saved
    file or another thread could trip over.
    """
    seen = [Seen() for _ in layers]

    def note(i: int, inputs: tuple[object, ...], output: object) -> None:
        if inputs and isinstance(inputs[0], Tensor) and isinstance(output, Tensor):
            seen[i].inputs.append(inputs[0])
            seen[i].outputs.append(output)
            if order is not None:
                order.append(i)

    with ExitStack() as stack:
        for i, layer in enumerate(layers):
            hook = layer.register_forward_hook(lambda _, x, y, i=i: note(i, x, y))
            stack.callback(hook.remove)
        yield seen


@contextmanager
def changing(layer: nn.Module, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace what a layer returns while the block runs."""
    handle = layer.register_forward_hook(lambda _, __, output: change(output))
    try:
        yield
    finally:
        handle.remove()
