"""The passes of a training step as one CUDA graph, without launch overhead."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from rood.models.model import Model
from rood.training.objectives.base import Batch

Passes = Callable[[Batch, Generator], Float[Tensor, ""]]  # forward and backward; returns the loss

WARM_UP = 3  # steps before the capture, in which libraries select kernels


class Graphed:
    """`passes`, captured on the first batch and replayed on the others.

    The inner steps of an attack are hundreds of kernels shorter than their launch. All batches must
    have one shape, and the passes may not synchronise with the host. Random numbers come from a
    generator on the device, so the weights differ from those of a run without graphs.
    """

    def __init__(self, passes: Passes, model: Model) -> None:
        self.passes, self.model = passes, model
        self.batch: Batch | None = None

    def __call__(self, batch: Batch, noise: Generator) -> Float[Tensor, ""]:
        """Replay the passes on a batch; fills the gradients."""
        if self.batch is None:
            self.record(batch)
        assert self.batch is not None
        for name, value in _tensors(self.batch).items():
            given = getattr(batch, name)
            value.copy_(given) if isinstance(given, Tensor) else value.fill_(given)
        self.source.manual_seed(noise.initial_seed())
        self.graph.replay()
        return self.loss

    def record(self, batch: Batch) -> None:
        """Warm up, restore the buffers, and capture the passes."""
        outliers = None if batch.outliers is None else batch.outliers.clone()
        done = torch.full((), float(batch.done), device=batch.x.device)
        self.batch = Batch(batch.x.clone(), batch.y.clone(), outliers, done=done)
        self.source = torch.Generator(batch.x.device)
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(self.source)
        before = [b.clone() for b in self.model.buffers()]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self.passes(self.batch, self.source)
        torch.cuda.current_stream().wait_stream(side)
        for buffer, value in zip(self.model.buffers(), before, strict=True):
            buffer.copy_(value)
        for p in self.model.parameters():
            p.grad = None  # the graph allocates its own, which every replay overwrites
        with torch.cuda.graph(self.graph):
            self.loss = self.passes(self.batch, self.source)


def _tensors(batch: Batch) -> dict[str, Tensor]:
    return {n: t for n, t in batch._asdict().items() if isinstance(t, Tensor)}
