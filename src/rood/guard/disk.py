"""A guard on disk: tensors as safetensors, all else as JSON, and a hash over every byte of it.

guard.json              detector, threshold, shape, classes, and the hashes of the other files
detector.safetensors    what the detector learnt
network.safetensors     the network, with its card network.json; network-1 ... in an ensemble

A network of rood.models.backbones is part of the folder; of any other, guard.json has the hash of
its weights, and whoever loads the guard hands over the network itself.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rood import config
from rood._files import write_whole
from rood.errors import CapabilityError, CheckpointError, InputError, RoodError
from rood.guard.calibration import Calibration
from rood.guard.rebuild import described, networks_of, rebuilt
from rood.models import backbones, checkpoint, generative
from rood.models.backbones import Backbone
from rood.models.load import has_card, load_network
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.version import __version__

if TYPE_CHECKING:
    from rood.guard.guard import Guard

FORMAT = 1
CARD, LEARNT = "guard.json", "detector.safetensors"
_KEYS = ("detector", "networks", "calibration", "shape", "classes", "about", "files")


def save(guard: "Guard", folder: Path) -> str:
    """Write the guard; guard.json comes last, so that half a guard is none."""
    networks = networks_of(guard.detector)
    tree = described(guard.detector, networks)
    about = {"shape": list(guard.shape), "classes": list(guard.classes)}
    _check_plain(guard.about)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CARD).unlink(missing_ok=True)
        records = [_written(m, folder, i, about) for i, m in enumerate(networks)]
        checkpoint.write_tensors(guard.detector.fitted_state(), folder / LEARNT)
        names = [LEARNT, *(f for r in records if r["file"] for f in _pair(r["file"]))]
        card = {
            "format": FORMAT,
            "rood": __version__,
            "detector": tree,
            "networks": records,
            "calibration": asdict(guard.calibration),
            **about,
            "about": dict(guard.about),
            "files": {name: checkpoint.sha256_of(folder / name) for name in names},
        }
        card["sha256"] = _digest(card)
        write_whole(folder / CARD, (json.dumps(card, indent=2) + "\n").encode())
    except OSError as e:
        raise CheckpointError(f"cannot write a guard to {str(folder)!r}: {e.strerror}") from e
    return str(card["sha256"])


def load(folder: Path, given: Sequence[nn.Module]) -> "Guard":
    """The guard in `folder`, with the networks that it does not have itself."""
    from rood.guard.guard import Guard

    card = _card(folder)
    _check_files(folder, card["files"])
    try:
        networks = [_network(record, folder, given) for record in card["networks"]]
        detector = rebuilt(card["detector"], networks).eval()
        detector.load_fitted(checkpoint.read_tensors(folder / LEARNT))
        calibration = config.build(Calibration, card["calibration"], "calibration")
        channels, height, width = (int(n) for n in card["shape"])
        shape = channels, height, width
        return Guard(detector, calibration, shape, tuple(card["classes"]), card["about"])
    except CapabilityError:
        raise
    except (RoodError, KeyError, TypeError, ValueError, AttributeError) as e:
        reason = f"lacks {e}" if isinstance(e, KeyError) else str(e)
        raise CheckpointError(f"the guard in {str(folder)!r} cannot be used: {reason}") from e


def named_network(folder: Path, spec: str, weights: str | None = None) -> Model:
    """A network as `rood audit` names it, made for the images of the guard, for `load` to check."""
    card = _card(folder)
    try:
        channels, height, width = (int(n) for n in card["shape"])
        known = {k: [float(v) for v in card["networks"][0][k]] for k in ("mean", "std")}
    except (KeyError, IndexError, TypeError, ValueError) as e:
        raise CheckpointError(
            f"expected shape and normalisation in {str(folder / CARD)!r}, got something else: "
            "fit the guard again"
        ) from e
    normal = {} if has_card(spec) else known
    model, _ = load_network(spec, weights=weights, shape=(channels, height, width), **normal)
    return model


def _written(model: Model, folder: Path, i: int, about: dict[str, Any]) -> dict[str, Any]:
    """What guard.json says of a network; one of ours is written beside it."""
    name = None
    if _is_ours(model):
        name = f"network{f'-{i}' if i else ''}.safetensors"
        checkpoint.save(model, folder / name, about)
    return {
        "fingerprint": model.fingerprint(),
        "file": name,
        "class": type(model.net).__name__,
        "head": next(n for n, m in model.net.named_modules() if m is model.head),
        "mean": model.mean.flatten().tolist(),
        "std": model.std.flatten().tolist(),
    }


def _is_ours(model: Model) -> bool:
    """Whether a checkpoint gives it back to the last bit."""
    net = model.net
    known = {*backbones.registry.files, *generative.registry.files}
    if not isinstance(net, Backbone) or net.name not in known:
        return False
    return backbones.find(net.name) is type(net) and model.mean.dtype == torch.float32


def _network(record: dict[str, Any], folder: Path, given: Sequence[nn.Module]) -> Model:
    wanted = record["fingerprint"]
    normal = {"mean": record["mean"], "std": record["std"]}
    found = []
    for net in given:
        whole = isinstance(net, Model)
        model = net if isinstance(net, Model) else wrap(net, head=record["head"], **normal)
        if (print_ := model.fingerprint()) == wanted:
            return wrap(model.net, head=record["head"], **normal) if whole else model
        found.append(print_[:12])
    if given:
        raise CapabilityError(
            f"expected the network that the guard was made with, sha256 {wanted[:12]}... over "
            f"weights and normalisation, got {', '.join(f'{f}...' for f in found)}: hand over that "
            "one"
        )
    if record["file"] is None:
        raise CapabilityError(
            f"expected the network as well, a {record['class']} that the guard in {str(folder)!r} "
            "knows by its hash alone: Guard.load(folder, model=network) or rood score --model"
        )
    model = checkpoint.load(folder / record["file"])
    if model.fingerprint() != wanted:
        raise CheckpointError(f"{record['file']!r} holds another network than the guard's")
    return model


def _card(folder: Path) -> dict[str, Any]:
    path = folder / CARD
    try:
        card = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as e:
        raise CheckpointError(
            f"expected a guard in {str(folder)!r}, found no {CARD}: rood fit writes one"
        ) from e
    except (ValueError, OSError, RecursionError) as e:
        raise CheckpointError(f"{str(path)!r} is damaged or not JSON") from e
    if not isinstance(card, dict) or "sha256" not in card:
        raise CheckpointError(f"expected a guard's card in {str(path)!r}, got something else")
    version = card.get("format")
    if type(version) is not int or version > FORMAT:
        raise CheckpointError(
            f"{str(path)!r} has format {version!r}, this rood reads up to {FORMAT}: update rood"
        )
    if (found := _digest(card)) != card["sha256"]:
        raise CheckpointError(
            f"{str(path)!r} was changed: expected sha256 {str(card['sha256'])[:12]}..., "
            f"got {found[:12]}...: fit the guard again"
        )
    if missing := [k for k in _KEYS if k not in card]:
        raise CheckpointError(f"{str(path)!r} lacks {', '.join(missing)}")
    return card


def _check_files(folder: Path, files: Any) -> None:
    if not isinstance(files, dict) or LEARNT not in files:
        raise CheckpointError(f"expected the hashes of the files in {str(folder / CARD)!r}")
    for name, wanted in files.items():
        path = folder / name
        if path.name != name or not path.is_file():
            raise CheckpointError(f"expected {name!r} in the guard {str(folder)!r}, found none")
        if (found := checkpoint.sha256_of(path)) != wanted:
            raise CheckpointError(
                f"{str(path)!r} was changed or cut short: expected sha256 {str(wanted)[:12]}..., "
                f"got {found[:12]}...: fit the guard again"
            )


def _check_plain(about: Mapping[str, Any]) -> None:
    try:
        json.dumps(dict(about))
    except (TypeError, ValueError) as e:
        raise InputError(f"expected what JSON can hold in about, got something else: {e}") from e


def _pair(name: str) -> tuple[str, str]:
    return name, checkpoint.card_path(Path(name)).name


def _digest(card: dict[str, Any]) -> str:
    """Over everything but itself; the files are in it by their own hashes."""
    rest = {k: v for k, v in card.items() if k != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
