"""Look inside a network while it runs, without changing it."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from torch import Tensor, nn


@dataclass
class Seen:
    """What one layer was given and what it returned, call by call."""

    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)


@contextmanager
def watching(layers: Sequence[nn.Module]) -> Iterator[list[Seen]]:
    """Record the input and output of each layer while the block runs.

    The hooks live only inside the block: nothing stays on the network that a copy of it, a saved
    file or another thread could trip over.
    """
    seen = [Seen() for _ in layers]
    with ExitStack() as stack:
        for layer, record in zip(layers, seen, strict=True):

            def hook(
                _: nn.Module, inputs: tuple[Tensor, ...], output: Tensor, record: Seen = record
            ) -> None:
                record.inputs.append(inputs[0])
                record.outputs.append(output)

            handle = layer.register_forward_hook(hook)
            stack.callback(handle.remove)
        yield seen
