"""Where a training run stands, on disk: weights and momentum in safetensors, the rest in JSON.

`state.json` is replaced last and names the tensors' file and its hash, so that a run killed at any
moment leaves the state before or the state after, never a mixture.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rood._files import write_whole
from rood.errors import CheckpointError
from rood.models.checkpoint import read_tensors, sha256_of, write_tensors

FORMAT = 1


@dataclass(frozen=True)
class State:
    """After `len(epochs)` epochs."""

    tensors: dict[str, Tensor]
    epochs: list[dict[str, Any]]  # the records of the epochs done, as JSON has them


def save(folder: Path, state: State, run: Mapping[str, Any]) -> None:
    """Write the state of the run that `run` describes; the state before it goes afterwards."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"epoch-{len(state.epochs):04d}.safetensors"
        write_tensors(state.tensors, file)
        card = {"format": FORMAT, "file": file.name, "sha256": sha256_of(file)}
        card |= {"epochs": state.epochs, "run": dict(run)}
        write_whole(folder / "state.json", json.dumps(card, indent=1).encode())
        for old in folder.glob("epoch-*.safetensors"):
            if old != file:
                os.unlink(old)
    except OSError as e:
        raise CheckpointError(f"cannot write the training state to {folder}: {e.strerror}") from e


def load(folder: Path, run: Mapping[str, Any]) -> State | None:
    """The state to continue from, None where there is none yet."""
    path = folder / "state.json"
    if not path.exists():
        return None
    try:
        card = json.loads(path.read_text())
        found, name, digest, epochs = (card[k] for k in ("run", "file", "sha256", "epochs"))
    except (ValueError, KeyError, TypeError) as e:
        raise CheckpointError(f"{path} is damaged: remove {folder} and train anew") from e
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
    return State(tensors, epochs)


def _differing(found: Mapping[str, Any], wanted: Mapping[str, Any], prefix: str = "") -> list[str]:
    """One "key was a, now b" for each key that differs."""
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
