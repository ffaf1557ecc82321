"""Count what an evaluation costs, in images passed forwards and backwards through the network."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from torch import Tensor

from rood.models.model import Model, Outputs


@dataclass
class Cost:
    """Images passed through the network, and the time it took."""

    forwards: int = 0
    backwards: int = 0
    seconds: float = 0.0


@contextmanager
def metered(model: Model) -> Iterator[Cost]:
    """Count every pass through `model` while the block runs."""
    cost = Cost()
    start = perf_counter()

    def passed(_: Model, __: tuple[object, ...], out: Outputs) -> None:
        n = len(out.features)
        cost.forwards += n
        if out.features.requires_grad:  # whatever the score uses, its gradient comes by here

            def returned(_: Tensor) -> None:
                cost.backwards += n

            out.features.register_hook(returned)

    handle = model.register_forward_hook(passed)
    try:
        yield cost
    finally:
        handle.remove()
        cost.seconds = perf_counter() - start
