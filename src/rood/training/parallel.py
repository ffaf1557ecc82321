"""Data-parallel training under `torchrun`: every process works on its share of each batch.

Batch statistics are those of a process's own share; gradients and running statistics are averaged
after every step, so that all processes hold the same weights.
"""

import atexit
import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from rood.models.model import Model


@dataclass(frozen=True)
class Rank:
    """This process: number `rank` of `processes`."""

    rank: int = 0
    processes: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    def of(self, batch: Tensor) -> Tensor:
        """This process's part of a batch."""
        return batch if self.processes == 1 else batch[self.rank :: self.processes]

    @torch.no_grad()
    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its mean over all processes, in one all-reduce."""
        if self.processes == 1 or not tensors:
            return
        flat = torch.cat([t.flatten() for t in tensors])
        dist.all_reduce(flat)
        flat /= self.processes
        parts = flat.split([t.numel() for t in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def average_step(self, model: Model) -> None:
        """Average the gradients and running statistics of one step."""
        if self.processes > 1:
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            self.average(gradients + [b for b in model.net.buffers() if b.is_floating_point()])

    @torch.no_grad()
    def agree(self, model: Model) -> None:
        """Broadcast the weights of the first process."""
        if self.processes > 1:
            for value in model.state_dict().values():
                dist.broadcast(value, src=0)


ALONE = Rank()


def first() -> bool:
    """Whether this process is the one that writes files and reports."""
    return not dist.is_initialized() or dist.get_rank() == 0


def join(device: torch.device) -> tuple[Rank, torch.device]:
    """Join the process group of torchrun, if there is one; returns this process and its device."""
    if "TORCHELASTIC_RUN_ID" not in os.environ and not dist.is_initialized():
        return Rank(), device
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(_leave)
    return Rank(dist.get_rank(), dist.get_world_size()), device


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
