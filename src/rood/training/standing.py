"""All that a training step changes, as tensors to keep and to continue from."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rood.models.model import Model
from rood.training.average import Average

# what torch's optimizers call what they keep, and its name here
MOMENTS = {
    "momentum_buffer": "momentum",
    "exp_avg": "first",
    "exp_avg_sq": "second",
    "step": "step",
}


@dataclass(frozen=True)
class Standing:
    """The network, its momentum, its running mean, and what the objective remembers."""

    model: Model
    optimizer: torch.optim.Optimizer
    average: Average
    memory: nn.Module | None

    def weights(self) -> dict[str, Tensor]:
        """What must be finite."""
        held = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        if self.memory is not None:
            held |= {f"memory.{k}": v for k, v in self.memory.state_dict().items()}
        return held

    def tensors(self) -> dict[str, Tensor]:
        """All of it, by name."""
        tensors = self.weights() | {f"average.{k}": v for k, v in self.average.mean.items()}
        for name, p in self.model.named_parameters():
            for key, moment in self.optimizer.state[p].items():
                if isinstance(moment, Tensor):  # SGD begins with None
                    tensors[f"{MOMENTS[key]}.{name}"] = moment
        return tensors

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` gave."""
        means = {f"average.{k}": v for k, v in self.average.mean.items()}
        for name, value in (self.weights() | means).items():
            value.copy_(tensors[name])
        for name, p in self.model.named_parameters():
            for key, short in MOMENTS.items():
                if (moment := tensors.get(f"{short}.{name}")) is not None:
                    # a count stays on the CPU, where Adam wants it
                    kept = moment if key == "step" else torch.empty_like(p).copy_(moment)
                    self.optimizer.state[p][key] = kept
