"""Checkpoints: weights as safetensors and a JSON card with their hash."""

import hashlib
import json
import os
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor

from rood import config
from rood._files import Packed, check_unpacked, opened, write_whole
from rood._parsing import json_file, tensor_shapes
from rood.data.base import Shape
from rood.errors import CapabilityError, CheckpointError, ConfigError, RoodError, first_line
from rood.models import backbones
from rood.models.backbones import Backbone
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.seeds import generator

FORMAT = 2  # from 2 on, a hash covers the card; rood 0.1 wrote 1
SEAL = "card_sha256"
MOST_CLASSES, MOST_SIZE = 1 << 20, 1 << 14  # of a card: widths, depths, pixels of a side
TYPES = {
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8},
    **{"U8": torch.uint8, "BOOL": torch.bool},
}
KINDS: dict[str, Any] = {
    "format": int,
    "backbone": str,
    "settings": dict[str, object],
    "mean": tuple[float, ...],
    "std": tuple[float, ...],
    "shape": tuple[int, ...],
    "classes": tuple[str, ...],
    "sha256": str,
}


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
        write_whole(card_path(path), sealed(full, SEAL))
    except OSError as e:
        raise CheckpointError(f"cannot write {str(path)!r}: {e.strerror}") from e


def load(path: str | Path) -> Model:
    """Load a checkpoint in eval mode with frozen float32 weights, after verifying it."""
    path = Path(path)
    shapes = read_shapes(path)
    card = read_card(path)
    net = _outlined(card, shapes, path)  # compared before anything is allocated
    if (found := sha256_of(path)) != card["sha256"]:
        raise CheckpointError(
            f"{str(path)!r} does not match its card: expected sha256 {card['sha256'][:12]}..., "
            f"got {found[:12]}...: the weights or the card were replaced"
        )
    state = read_tensors(path)
    _check_finite(state, path)
    net.to_empty(device="cpu")
    net.initialise(generator(0, "weights", net.name))
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
        with opened(path) as file:
            _check_packing(file)
            found = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as e:
        raise CheckpointError(
            f"{str(path)!r} is damaged or contains more than tensors, which rood never unpickles: "
            "save network.state_dict() only"
        ) from e
    except Packed as e:
        raise CheckpointError(f"{str(path)!r}: {e}: save network.state_dict() again") from e
    except Exception as e:  # a damaged file may raise anything
        raise CheckpointError(f"{str(path)!r} is cut short or not a PyTorch file") from e
    if isinstance(found, dict) and isinstance(found.get("state_dict"), dict):
        found = found["state_dict"]
    if not (
        isinstance(found, dict)
        and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in found.items())
    ):
        raise CheckpointError(
            f"expected tensors by name in {str(path)!r}, got {type(found).__name__}: "
            "save network.state_dict()"
        )
    return dict(found)


def _check_packing(file: BinaryIO) -> None:
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            check_unpacked(archive)
    file.seek(0)


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
        if wanted[name].is_floating_point() != state[name].is_floating_point():
            raise CheckpointError(
                f"expected {name!r} as {wanted[name].dtype} in {str(path)!r}, got "
                f"{state[name].dtype}: {name_hint}"
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
    check_format(card.get("format", 1), FORMAT, place)
    check_keys(card, list(KINDS), place)
    if SEAL in card or card["format"] > 1:
        check_seal(card, SEAL, place, "the weights are of no use without theirs: train again")
    try:
        config.check(KINDS, card, str(place))
    except ConfigError as e:
        raise CheckpointError(f"{e}: the card was edited or damaged") from e
    _check_sizes(card, place)
    return card


def _check_sizes(card: Mapping[str, Any], place: Path) -> None:
    check_shape(card["shape"], place)
    numbers = [v for k, v in card["settings"].items() if k != "classes" and type(v) is int]
    few = card["settings"].get("classes", 2) in range(MOST_CLASSES)
    if not few or not all(-1 <= n <= MOST_SIZE for n in numbers):
        raise CheckpointError(
            f"expected sizes up to {MOST_SIZE:,} and up to {MOST_CLASSES:,} classes in "
            f"{str(place)!r}, got {card['settings']!r:.200}"
        )
    if not {len(card["mean"]), len(card["std"])} <= {1, card["shape"][0]}:
        raise CheckpointError(
            f"expected one mean and std, or one for each of {card['shape'][0]} channels, in "
            f"{str(place)!r}, got {len(card['mean'])} and {len(card['std'])}"
        )


def check_shape(value: Any, place: Path) -> Shape:
    """Channels, height and width of images, as a card has them."""
    sizes = value if isinstance(value, list) else []
    if len(sizes) != 3 or not all(type(n) is int and 1 <= n <= MOST_SIZE for n in sizes):
        raise CheckpointError(
            f"expected a shape of three sizes up to {MOST_SIZE:,} in {str(place)!r}, got "
            f"{value!r:.80}"
        )
    return sizes[0], sizes[1], sizes[2]


def sealed(card: Mapping[str, Any], seal: str) -> bytes:
    """A card as JSON, with a hash of everything else in it under the name `seal`."""
    plain = json.loads(json.dumps(card))
    return (json.dumps(plain | {seal: digest(plain, seal)}, indent=2) + "\n").encode()


def check_seal(card: Mapping[str, Any], seal: str, place: Path, do: str) -> None:
    """Refuse a card whose hash is missing or another."""
    if (found := digest(card, seal)) != (wanted := card.get(seal)):
        raise CheckpointError(
            f"{str(place)!r} was changed: expected sha256 {str(wanted)[:12]}..., "
            f"got {found[:12]}...: {do}"
        )


def digest(card: Mapping[str, Any], seal: str) -> str:
    """SHA-256 of a card without the entry `seal`."""
    rest = {k: v for k, v in card.items() if k != seal}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read_json(place: Path, absent: str) -> Any:
    """The content of a card; `absent` says what was expected where there is none."""
    try:
        return json_file(place)
    except (FileNotFoundError, NotADirectoryError) as e:
        raise CheckpointError(f"expected {absent}") from e
    except OSError as e:
        raise CheckpointError(f"{str(place)!r} cannot be read: {e.strerror}") from e
    except ValueError as e:
        raise CheckpointError(f"{str(place)!r} is damaged or not JSON") from e


def check_format(version: object, newest: int, place: Path) -> None:
    """Refuse a card that a newer rood wrote."""
    if type(version) is not int or not 1 <= version <= newest:
        raise CheckpointError(
            f"{str(place)!r} has format {version!r}, this rood reads up to {newest}: update rood"
        )


def check_keys(card: Mapping[str, Any], keys: Sequence[str], place: Path) -> None:
    """Refuse a card without all of these entries."""
    if missing := [k for k in keys if k not in card]:
        raise CheckpointError(f"{str(place)!r} lacks {', '.join(missing)}")


def read_shapes(path: Path) -> dict[str, Tensor]:
    """Names, shapes and types in a safetensors file, as tensors without content."""
    _check_there(path)
    try:
        found = tensor_shapes(path)
    except (OSError, ValueError, TypeError, KeyError) as e:
        raise CheckpointError(f"{str(path)!r} is cut short or not a safetensors file") from e
    if odd := sorted(name for name, (kind, _) in found.items() if kind not in TYPES):
        raise CheckpointError(
            f"expected plain numbers in {str(path)!r}, got {found[odd[0]][0]} in {odd[0]!r:.80}: "
            "save it as float32"
        )
    return {
        name: torch.empty(shape, dtype=TYPES[kind], device="meta")
        for name, (kind, shape) in found.items()
    }


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file to the CPU."""
    read_shapes(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as e:
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
    if not os.path.isfile(path):
        what = "found a folder" if os.path.isdir(path) else "found none"
        raise CheckpointError(f"expected a weights file at {str(path)!r}, {what}")


def _outlined(card: Mapping[str, Any], shapes: Mapping[str, Tensor], path: Path) -> Backbone:
    """The network of a card, without memory, if it has tensors of these shapes."""
    settings = {k: v for k, v in card["settings"].items() if k != "scored"}
    scored = card["settings"].get("scored", False) is True
    try:
        config.arguments(backbones.find(card["backbone"]), settings, "settings")
        net = backbones.outline(card["backbone"], scored=scored, **settings)
    except (RoodError, TypeError, ValueError, ArithmeticError, LookupError, RuntimeError) as e:
        raise CheckpointError(
            f"the card of {str(path)!r} does not describe a network: {first_line(e)}"
        ) from e
    hints = {
        "name_hint": "another backbone or settings?",
        "shape_hint": "another number of classes, channels or width?",
    }
    check_fit(net.state_dict(), shapes, path, **hints)
    return net


def _check_finite(state: Mapping[str, Tensor], path: Path) -> None:
    for name in sorted(state):
        if not state[name].isfinite().all():
            raise CheckpointError(
                f"expected finite weights in {str(path)!r}, got NaN or infinity in {name!r}"
            )


def _short(values: Tensor) -> list[float]:
    """Floats with the fewest digits that represent the float32 value: 0.3, not 0.30000001192."""
    return [float(str(v)) for v in values.flatten().cpu().numpy()]
