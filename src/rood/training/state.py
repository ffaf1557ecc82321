"""The state of a training run: what a step changes, and how it is saved to continue from.

`state.json` is replaced last and names the file of tensors and its hash: a run killed at any moment
leaves the state before or the state after, never a mixture.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rood import config
from rood._files import Folder
from rood.errors import CheckpointError, ConfigError
from rood.models import checkpoint
from rood.models.checkpoint import read_tensors, sha256_of, write_tensors
from rood.models.model import Model
from rood.training.ema import EMA

FORMAT = 2  # from 2 on, a hash covers the card; rood 0.1 wrote 1
SEAL = "card_sha256"
KINDS: dict[str, Any] = {
    "format": int,
    "file": str,
    "sha256": str,
    "epochs": list[dict[str, object]],
    "run": dict[str, object],
}
OURS = ("state.json*", "epoch-*.safetensors*")

# what torch's optimizers call their buffers, and the names in our files
MOMENTS = {
    "momentum_buffer": "momentum",
    "exp_avg": "first",
    "exp_avg_sq": "second",
    "step": "step",
}


@dataclass(frozen=True)
class Epoch:
    """The record of one pass over the data."""

    epoch: int  # from 1
    epochs: int  # in all
    loss: float  # mean over the steps
    lr: float  # of the last step
    seconds: float
    accuracy: float | None  # on the held-out images; None without any
    robust_accuracy: float | None = None  # under PGD-10, where settings.robust is set


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
        self._check(tensors, self.weights() | means)
        for name, value in (self.weights() | means).items():
            value.copy_(tensors[name])
        for name, p in self.model.named_parameters():
            for key, short in MOMENTS.items():
                if (moment := tensors.get(f"{short}.{name}")) is not None:
                    # a count stays on the CPU, where Adam wants it
                    kept = moment if key == "step" else torch.empty_like(p).copy_(moment)
                    self.optimizer.state[p][key] = kept

    def _check(self, tensors: Mapping[str, Tensor], wanted: dict[str, Tensor]) -> None:
        """Refuse tensors of another network, objective or optimizer."""
        shorts = MOMENTS.values()
        for name, p in self.model.named_parameters():
            there = {f"{s}.{name}": p for s in shorts if s != "step" and f"{s}.{name}" in tensors}
            wanted |= there
        counts = {f"step.{name}" for name, _ in self.model.named_parameters()}
        given = {k: v for k, v in tensors.items() if k not in counts or v.numel() != 1}
        hints = {"name_hint": "remove its folder", "shape_hint": "remove its folder"}
        checkpoint.check_fit(wanted, given, "the state of the training", **hints)


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
        inside.write("state.json", checkpoint.sealed(card, SEAL))
        for old in folder.glob("epoch-*.safetensors"):
            if old != file:
                inside.remove(old.name)
    except OSError as e:
        raise CheckpointError(f"cannot write the training state to {folder}: {e.strerror}") from e


def load(folder: Path, run: Mapping[str, Any]) -> Saved | None:
    """The state to continue from; None where there is none yet."""
    path = folder / "state.json"
    if not os.path.lexists(path):
        return None
    card = checkpoint.read_json(path, f"the state of a training at {path}, found none")
    try:
        config.check(KINDS, card, "state.json")
        checkpoint.check_format(card.get("format", 1), FORMAT, path)
        if SEAL in card or card["format"] > 1:
            checkpoint.check_seal(card, SEAL, path, f"remove {folder} and train again")
        epochs = [asdict(config.build(Epoch, e, "epochs")) for e in card["epochs"]]
    except (ConfigError, AttributeError, TypeError) as e:
        raise CheckpointError(f"{path} is damaged: remove {folder} and train again") from e
    if differing := _differing(card["run"], json.loads(json.dumps(dict(run)))):
        raise CheckpointError(
            f"{folder} holds a run with other settings ({'; '.join(differing)}): "
            "use the same ones, or another folder"
        )
    return Saved(_tensors(folder, card), epochs)


def _tensors(folder: Path, card: Mapping[str, Any]) -> dict[str, Tensor]:
    file = folder / card["file"]
    if file.name != card["file"]:
        raise CheckpointError(f"expected a file inside {folder}, got {card['file']!r:.80}")
    tensors = read_tensors(file)
    if sha256_of(file) != card["sha256"]:
        raise CheckpointError(f"{file} was altered after it was written: remove {folder}")
    return tensors


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
