"""The state of a training run: what a step changes, and how it is saved to continue from.

`state.json` is replaced last and names the file of tensors and its hash: a run killed at any moment
leaves the state before or the state after, never a mixture.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rood._files import Folder
from rood.errors import CheckpointError
from rood.models.checkpoint import read_tensors, sha256_of, write_tensors
from rood.models.model import Model
from rood.training.ema import EMA

FORMAT = 1
OURS = ("state.json*", "epoch-*.safetensors*")

# what torch's optimizers call their buffers, and the names in our files
MOMENTS = {
    "momentum_buffer": "momentum",
    "exp_avg": "first",
    "exp_avg_sq": "second",
    "step": "step",
}


@dataclass(frozen=True)
class State:
    """Everything that a training step changes."""

    model: Model
    optimizer: torch.optim.Optimizer
    average: EMA
    memory: nn.Module | None

    def weights(self) -> dict[str, Tensor]:
        """What must stay finite: the network, and the memory of the objective."""
        held = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        if self.memory is not None:
            held |= {f"memory.{k}": v for k, v in self.memory.state_dict().items()}
        return held

    def tensors(self) -> dict[str, Tensor]:
        """Everything by name."""
        tensors = self.weights() | {f"average.{k}": v for k, v in self.average.mean.items()}
        for name, p in self.model.named_parameters():
            for key, moment in self.optimizer.state[p].items():
                if isinstance(moment, Tensor):  # SGD begins with None
                    tensors[f"{MOMENTS[key]}.{name}"] = moment
        return tensors

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of `tensors`."""
        means = {f"average.{k}": v for k, v in self.average.mean.items()}
        for name, value in (self.weights() | means).items():
            value.copy_(tensors[name])
        for name, p in self.model.named_parameters():
            for key, short in MOMENTS.items():
                if (moment := tensors.get(f"{short}.{name}")) is not None:
                    # a count stays on the CPU, where Adam wants it
                    kept = moment if key == "step" else torch.empty_like(p).copy_(moment)
                    self.optimizer.state[p][key] = kept


class Saved(NamedTuple):
    """A state on disk, after `len(epochs)` epochs."""

    tensors: dict[str, Tensor]
    epochs: list[dict[str, Any]]  # the records of these epochs


def save(folder: Path, state: Saved, run: Mapping[str, Any]) -> None:
    """Write the state of the run that `run` describes, then remove the one before."""
    try:
        inside = Folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"epoch-{len(state.epochs):04d}.safetensors"
        write_tensors(state.tensors, file)
        card = {"format": FORMAT, "file": file.name, "sha256": sha256_of(file)}
        card |= {"epochs": state.epochs, "run": dict(run)}
        inside.write("state.json", json.dumps(card, indent=1).encode())
        for old in folder.glob("epoch-*.safetensors"):
            if old != file:
                inside.remove(old.name)
    except OSError as e:
        raise CheckpointError(f"cannot write the training state to {folder}: {e.strerror}") from e


def load(folder: Path, run: Mapping[str, Any]) -> Saved | None:
    """The state to continue from; None where there is none yet."""
    path = folder / "state.json"
    if not path.exists():
        return None
    try:
        card = json.loads(path.read_text())
        found, name, digest, epochs = (card[k] for k in ("run", "file", "sha256", "epochs"))
    except (ValueError, KeyError, TypeError) as e:
        raise CheckpointError(f"{path} is damaged: remove {folder} and train again") from e
    if card.get("format", 0) > FORMAT:
        raise CheckpointError(f"{path} was written by a newer rood: update rood")
    if differing := _differing(found, json.loads(json.dumps(dict(run)))):
        raise CheckpointError(
            f"{folder} holds a run with other settings ({'; '.join(differing)}): "
            "use the same ones, or another folder"
        )
    file = folder / name
    tensors = read_tensors(file)
    if sha256_of(file) != digest:
        raise CheckpointError(f"{file} was altered after it was written: remove {folder}")
    return Saved(tensors, epochs)


def _differing(found: Mapping[str, Any], wanted: Mapping[str, Any], prefix: str = "") -> list[str]:
    """One phrase "key was a, now b" for each key that differs."""
    differing = []
    for key in sorted(set(found) | set(wanted)):
        old, new = found.get(key), wanted.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            differing += _differing(old, new, f"{prefix}{key}.")
        elif old != new:
            differing.append(f"{prefix}{key} was {_short(old)}, now {_short(new)}")
    return differing


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 30 else f"{text[:12]}..."
