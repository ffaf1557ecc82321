"""Checkpoints: weights as safetensors and a JSON card with their hash."""

import hashlib
import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor

from rood._files import write_whole
from rood.errors import CapabilityError, CheckpointError, RoodError
from rood.models import backbones
from rood.models.backbones import Backbone
from rood.models.model import Model
from rood.models.wrap import wrap

FORMAT = 1
_KEYS = ("format", "backbone", "settings", "mean", "std", "shape", "classes", "sha256")


def save(model: Model, path: str | Path, card: Mapping[str, Any], *, half: bool = False) -> None:
    """Write the weights to `path`, and the card to the same stem with ".json".

    `card` has at least "shape", (c, h, w) of the images, and "classes", the names of the classes;
    the architecture is added. half: store matrices in float16, for half the size.
    """
    path = Path(path)
    net = model.net
    if not isinstance(net, Backbone):
        raise CapabilityError(
            f"expected a network of rood.models.backbones, got {type(net).__name__}"
        )
    if missing := {"shape", "classes"} - set(card):
        raise CheckpointError(
            f"expected {', '.join(sorted(missing))} in the card, got {list(card)}"
        )
    state = {k: v.half() if half and v.ndim > 1 else v for k, v in net.state_dict().items()}
    known = {
        "format": FORMAT,
        "backbone": net.name,
        "settings": net.settings(),
        "mean": _short(model.mean),
        "std": _short(model.std),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(state, path)
        full = known | dict(card) | {"sha256": sha256_of(path)}
        write_whole(card_path(path), (json.dumps(full, indent=2) + "\n").encode())
    except OSError as e:
        raise CheckpointError(f"cannot write {str(path)!r}: {e.strerror}") from e


def load(path: str | Path) -> Model:
    """Load a checkpoint in eval mode with frozen float32 weights, after verifying it."""
    path = Path(path)
    state = read_tensors(path)
    card = read_card(path)
    if (found := sha256_of(path)) != card["sha256"]:
        raise CheckpointError(
            f"{str(path)!r} does not match its card: expected sha256 {card['sha256'][:12]}..., "
            f"got {found[:12]}...: the weights or the card were replaced"
        )
    net = _build(card, path)
    check_fit(
        net.state_dict(),
        state,
        path,
        name_hint="another backbone or settings?",
        shape_hint="another number of classes, channels or width?",
    )
    _check_finite(state, path)
    net.load_state_dict(state)  # converts to float32
    try:
        return wrap(net, head="head", mean=card["mean"], std=card["std"])
    except (RoodError, TypeError, ValueError) as e:
        raise CheckpointError(f"{str(path)!r} cannot be used: {e}") from e


def load_state(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a third-party .safetensors, .pth or .pt file; unpickles nothing else."""
    path = Path(path)
    if path.suffix == ".safetensors":
        return read_tensors(path)
    _check_there(path)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as e:
        raise CheckpointError(
            f"{str(path)!r} is damaged or contains more than tensors, which rood never unpickles: "
            "save network.state_dict() only"
        ) from e
    except Exception as e:  # a damaged file may raise anything
        raise CheckpointError(f"{str(path)!r} is cut short or not a PyTorch file") from e
    if isinstance(found, dict) and isinstance(found.get("state_dict"), dict):
        found = found["state_dict"]
    if not (isinstance(found, dict) and all(isinstance(v, Tensor) for v in found.values())):
        raise CheckpointError(
            f"expected tensors by name in {str(path)!r}, got {type(found).__name__}: "
            "save network.state_dict()"
        )
    return dict(found)


def check_fit(
    wanted: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    path: str | Path,
    *,
    name_hint: str,
    shape_hint: str,
) -> None:
    """Refuse tensors whose names or shapes are not the network's; the hints end the error."""
    for name in sorted(set(wanted) | set(state)):
        if name not in state or name not in wanted:
            what = "lacks" if name not in state else "has no place in the network for"
            raise CheckpointError(f"{str(path)!r} {what} {name!r}: {name_hint}")
        if (old := tuple(wanted[name].shape)) != (new := tuple(state[name].shape)):
            raise CheckpointError(
                f"expected {name!r} of shape {old} in {str(path)!r}, got {new}: {shape_hint}"
            )


def card_path(path: Path) -> Path:
    """The path of a weights file's card."""
    return path.with_suffix(".json")


def read_card(path: str | Path) -> dict[str, Any]:
    """The card of the weights file `path`."""
    place = card_path(Path(path))
    absent = f"the card of {str(path)!r} at {str(place)!r}, found none: keep both together"
    card = read_json(place, absent)
    if not isinstance(card, dict):
        raise CheckpointError(
            f"expected a JSON object in {str(place)!r}, got {type(card).__name__}"
        )
    check_format(card.get("format", FORMAT), FORMAT, place)
    check_keys(card, _KEYS, place)
    return card


def read_json(place: Path, absent: str) -> Any:
    """The content of a card; `absent` says what was expected where there is none."""
    try:
        return json.loads(place.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as e:
        raise CheckpointError(f"expected {absent}") from e
    except (ValueError, OSError, RecursionError) as e:
        raise CheckpointError(f"{str(place)!r} is damaged or not JSON") from e


def check_format(version: object, newest: int, place: Path) -> None:
    """Refuse a card that a newer rood wrote."""
    if type(version) is not int or version > newest:
        raise CheckpointError(
            f"{str(place)!r} has format {version!r}, this rood reads up to {newest}: update rood"
        )


def check_keys(card: Mapping[str, Any], keys: Sequence[str], place: Path) -> None:
    """Refuse a card without all of these entries."""
    if missing := [k for k in keys if k not in card]:
        raise CheckpointError(f"{str(place)!r} lacks {', '.join(missing)}")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file to the CPU."""
    _check_there(path)
    try:
        return load_file(path)
    except (SafetensorError, ValueError) as e:
        raise CheckpointError(f"{str(path)!r} is cut short or not a safetensors file") from e


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a safetensors file atomically."""
    # cloned: safetensors refuses tensors that share memory
    plain = {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}
    write_whole(path, to_bytes(plain))


def sha256_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _check_there(path: Path) -> None:
    if not path.is_file():
        what = "found a folder" if path.is_dir() else "found none"
        raise CheckpointError(f"expected a weights file at {str(path)!r}, {what}")


def _build(card: Mapping[str, Any], path: Path) -> Backbone:
    try:
        return backbones.create(card["backbone"], **card["settings"])
    except (RoodError, TypeError) as e:
        raise CheckpointError(f"the card of {str(path)!r} does not describe a network: {e}") from e


def _check_finite(state: Mapping[str, Tensor], path: Path) -> None:
    for name in sorted(state):
        if not state[name].isfinite().all():
            raise CheckpointError(
                f"expected finite weights in {str(path)!r}, got NaN or infinity in {name!r}"
            )


def _short(values: Tensor) -> list[float]:
    """Floats with the fewest digits that represent the float32 value: 0.3, not 0.30000001192."""
    return [float(str(v)) for v in values.flatten().cpu().numpy()]
