"""Several processes as one: each works on a share of the batch, all hold the same weights.

`torchrun` starts the processes and says in the environment who is who. Batch statistics are those
of a process's own share; gradients and running statistics are averaged after every step.
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
    """This process among all: number `rank` of `processes`."""

    rank: int = 0
    processes: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    def of(self, batch: Tensor) -> Tensor:
        """The part of a batch that is this process's."""
        return batch if self.processes == 1 else batch[self.rank :: self.processes]

    @torch.no_grad()
    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its mean over all processes, in one exchange."""
        if self.processes == 1 or not tensors:
            return
        flat = torch.cat([t.flatten() for t in tensors])
        dist.all_reduce(flat)
        flat /= self.processes
        parts = flat.split([t.numel() for t in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def average_step(self, model: Model) -> None:
        """Make one step's gradients and batch-norm statistics those of the whole batch."""
        if self.processes > 1:
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            self.average(gradients + [b for b in model.net.buffers() if b.is_floating_point()])

    @torch.no_grad()
    def agree(self, model: Model) -> None:
        """Give every process the weights of the first."""
        if self.processes > 1:
            for value in model.state_dict().values():
                dist.broadcast(value, src=0)


ALONE = Rank()


def first() -> bool:
    """Whether this process is the one that writes files and reports."""
    return not dist.is_initialized() or dist.get_rank() == 0


def join(device: torch.device) -> tuple[Rank, torch.device]:
    """Meet the other processes that torchrun started, where it did; who this is, and its device."""
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
