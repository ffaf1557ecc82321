"""Look inside a network while it runs, without changing it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import get_ident

from torch import Tensor, nn


@dataclass
class Seen:
    """What one layer was given and what it returned, call by call."""

    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)


@contextmanager
def watching(layers: Sequence[nn.Module], order: list[int] | None = None) -> Iterator[list[Seen]]:
    """Record the input and output of each layer while the block runs; in `order`, who ran when.

    The hooks live only inside the block, so that nothing stays on the network for a copy of it or a
    saved file to trip over; what other threads send through meanwhile is not recorded.
    """
    seen = [Seen() for _ in layers]
    owner = get_ident()

    def note(i: int, inputs: tuple[object, ...], output: object) -> None:
        if get_ident() != owner or not inputs:
            return
        if isinstance(inputs[0], Tensor) and isinstance(output, Tensor):
            seen[i].inputs.append(inputs[0])
            seen[i].outputs.append(output.clone())  # a ReLU may overwrite it in place
            if order is not None:
                order.append(i)

    with ExitStack() as stack:
        for i, layer in enumerate(layers):
            hook = layer.register_forward_hook(lambda _, x, y, i=i: note(i, x, y))
            stack.callback(hook.remove)
        yield seen


@contextmanager
def changing(layer: nn.Module, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace what a layer returns to this thread while the block runs."""
    owner = get_ident()
    handle = layer.register_forward_hook(
        lambda _, __, output: change(output) if get_ident() == owner else None
    )
    try:
        yield
    finally:
        handle.remove()


def last_of_each_size(net: nn.Module, run: Callable[[], object]) -> tuple[str, ...]:
    """For each size of map, the name of the layer that is the last to give one while `run` runs.

    Passed over are layers that run more than once, which have no one map, and, where there are
    others, those inside a block that shrinks such a map: a shortcut may lead around them.
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
            last.pop(size, None)  # sizes in the order in which they end
            last[size] = names[i]
            if not in_a_step(names[i], size):
                whole[size] = names[i]
    return tuple(whole.get(size, name) for size, name in last.items())


def _size(calls: Sequence[Tensor]) -> tuple[int, ...] | None:
    """Height and width of the one map there is; None for several, for vectors, for one place."""
    if len(calls) != 1 or calls[0].ndim != 4 or calls[0].shape[-1] * calls[0].shape[-2] == 1:
        return None
    return tuple(calls[0].shape[-2:])
