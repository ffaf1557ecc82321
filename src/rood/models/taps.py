"""Read or replace the outputs of a network's layers during a forward pass."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import get_ident

from torch import Tensor, nn


@dataclass
class LayerCalls:
    """The input and output of every call of one layer."""

    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)


@contextmanager
def watching(
    layers: Sequence[nn.Module], order: list[int] | None = None
) -> Iterator[list[LayerCalls]]:
    """Record input and output of each layer inside the block; `order` gets their indices.

    The hooks are removed at the end of the block, so that copies of the network and saved files
    contain none. Forward passes of other threads are not recorded.
    """
    seen = [LayerCalls() for _ in layers]
    owner = get_ident()

    def note(i: int, inputs: tuple[object, ...], output: object) -> None:
        if get_ident() != owner or not inputs:
            return
        if isinstance(inputs[0], Tensor) and isinstance(output, Tensor):
            seen[i].inputs.append(inputs[0])
            seen[i].outputs.append(output.clone())  # an in-place ReLU may overwrite it
            if order is not None:
                order.append(i)

    with ExitStack() as stack:
        for i, layer in enumerate(layers):
            hook = layer.register_forward_hook(lambda _, x, y, i=i: note(i, x, y))
            stack.callback(hook.remove)
        yield seen


@contextmanager
def changing(layer: nn.Module, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace the output of a layer inside the block, for this thread only."""
    owner = get_ident()
    handle = layer.register_forward_hook(
        lambda _, __, output: change(output) if get_ident() == owner else None
    )
    try:
        yield
    finally:
        handle.remove()


def last_of_each_size(net: nn.Module, run: Callable[[], object]) -> tuple[str, ...]:
    """The name of the last layer at each resolution of the feature maps while `run` runs.

    Layers that run more than once are skipped. So are layers inside a block that reduces the
    resolution, since a shortcut may bypass them, unless no other layer has that resolution.
    """
    named = {n: m for n, m in net.named_modules() if n}
    names = list(named)
    order: list[int] = []
    with watching(list(named.values()), order) as seen:
        run()
    records = dict(zip(names, seen, strict=True))

    def in_a_step(name: str, size: tuple[int, ...]) -> bool:
        parts = name.split(".")
        around = [".".join(parts[:i]) for i in range(1, len(parts))]
        return any(
            _size(records[a].inputs) == size and _size(records[a].outputs) not in (size, None)
            for a in around
            if not isinstance(named[a], nn.Sequential)
        )

    last: dict[tuple[int, ...], str] = {}
    whole: dict[tuple[int, ...], str] = {}
    for i in order:
        if size := _size(seen[i].outputs):
            last.pop(size, None)  # ordered by the last layer of each size
            last[size] = names[i]
            if not in_a_step(names[i], size):
                whole[size] = names[i]
    return tuple(whole.get(size, name) for size, name in last.items())


def _size(calls: Sequence[Tensor]) -> tuple[int, ...] | None:
    """Height and width of a layer's only map; None for several calls, vectors and 1x1 maps."""
    if len(calls) != 1 or calls[0].ndim != 4 or calls[0].shape[-1] * calls[0].shape[-2] == 1:
        return None
    return tuple(calls[0].shape[-2:])
