"""A guard on disk: safetensors and JSON, with hashes of every file.

guard.json              detector, threshold, shape, classes, and the hashes of the other files
detector.safetensors    the fitted state of the detector
network.safetensors     the network, with its card network.json; network-1 ... in an ensemble

A network of rood.models.backbones is stored in the folder. Of any other network guard.json has only
the hash, and the network itself must be given on loading.
"""

import inspect
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rood import config, detectors
from rood._files import Folder
from rood._moved import without_removed
from rood.detectors.base import Detector
from rood.errors import CapabilityError, CheckpointError, InputError, RoodError
from rood.guard.calibration import Calibration
from rood.guard.guard import Guard
from rood.models import backbones, checkpoint, generative
from rood.models.backbones import Backbone
from rood.models.load import has_card, load_network
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.version import __version__

FORMAT = 1
CARD, LEARNT, SEAL = "guard.json", "detector.safetensors", "sha256"
# what may stand in a folder that has no card yet
OURS = (f"{CARD}*", f"{LEARNT}*", "network.*", "network-[0-9]*", "*.onnx*", "*.pt2*")
_PLAIN = (str, int, float, bool, type(None))  # what a detector's arguments may be
_KEYS = ("detector", "networks", "calibration", "shape", "classes", "about", "files")


def save(guard: Guard, folder: Path) -> str:
    """Write the guard; guard.json comes last, so that a partial guard is not taken for one."""
    networks = networks_of(guard.detector)
    tree = described(guard.detector, networks)
    about = {"shape": list(guard.shape), "classes": list(guard.classes)}
    _check_plain(guard.about)
    inside = Folder(folder)
    _check_ours(inside)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        inside.remove(CARD)
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
        inside.write(CARD, checkpoint.sealed(card, SEAL))
    except OSError as e:
        raise CheckpointError(f"cannot write a guard to {str(folder)!r}: {e.strerror}") from e
    return checkpoint.digest(card, SEAL)


def _check_ours(folder: Folder) -> None:
    """Refuse a folder that belongs to somebody else: files in it are replaced."""
    other = folder.foreign(*OURS)
    if other is not None and not folder.has(CARD):
        raise CheckpointError(
            f"expected an empty folder or a guard at {str(folder.path)!r}, found {other!r} in it: "
            "choose another folder"
        )


def load(folder: Path, given: Sequence[nn.Module]) -> Guard:
    """The guard in `folder`; `given` are the networks that it does not contain."""
    card = _card(folder)
    _check_files(folder, card["files"])
    try:
        networks = [_network(record, folder, given) for record in card["networks"]]
        detector = rebuilt(card["detector"], networks).eval()
        detector.load_fitted(checkpoint.read_tensors(folder / LEARNT))
        calibration = config.build(Calibration, card["calibration"], "calibration")
        shape = checkpoint.check_shape(card["shape"], folder / CARD)
        return Guard(detector, calibration, shape, tuple(card["classes"]), card["about"])
    except CapabilityError:
        raise
    except (RoodError, KeyError, TypeError, ValueError, AttributeError) as e:
        reason = f"lacks {e}" if isinstance(e, KeyError) else str(e)
        raise CheckpointError(f"the guard in {str(folder)!r} cannot be used: {reason}") from e


def named_network(
    folder: Path, spec: str, weights: str | None = None, *, trust: bool = False
) -> Model:
    """Load a network by name for the image shape of the guard; `load` compares its hash."""
    card = _card(folder)
    try:
        shape = checkpoint.check_shape(card["shape"], folder / CARD)
        known = {k: [float(v) for v in card["networks"][0][k]] for k in ("mean", "std")}
    except (KeyError, IndexError, TypeError, ValueError) as e:
        raise CheckpointError(
            f"expected shape and normalisation in {str(folder / CARD)!r}, got something else: "
            "fit the guard again"
        ) from e
    normal = {} if has_card(spec) else known
    model, _ = load_network(spec, weights=weights, shape=shape, trust=trust, **normal)
    return model


def _written(model: Model, folder: Path, i: int, about: dict[str, Any]) -> dict[str, Any]:
    """The entry of a network in guard.json; a network of rood is written to the folder."""
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
    """Whether a checkpoint of rood stores the network exactly."""
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
            f"expected the network of the guard, sha256 {wanted[:12]}... over "
            f"weights and normalisation, got {', '.join(f'{f}...' for f in found)}: give that "
            "one"
        )
    if record["file"] is None:
        raise CapabilityError(
            f"expected the network as well, a {record['class']} that the guard in {str(folder)!r} "
            "does not contain: Guard.load(folder, model=network) or rood score --model"
        )
    model = checkpoint.load(folder / record["file"])
    if model.fingerprint() != wanted:
        raise CheckpointError(f"{record['file']!r} contains another network than the guard's")
    return model


def _card(folder: Path) -> dict[str, Any]:
    path = folder / CARD
    absent = f"a guard in {str(folder)!r}, found no {CARD}: rood fit writes one"
    card: Any = checkpoint.read_json(path, absent)
    if not isinstance(card, dict) or SEAL not in card:
        raise CheckpointError(f"expected a guard's card in {str(path)!r}, got something else")
    checkpoint.check_format(card.get("format"), FORMAT, path)
    checkpoint.check_seal(card, SEAL, path, "fit the guard again")
    checkpoint.check_keys(card, _KEYS, path)
    return card


def _check_files(folder: Path, files: Any) -> None:
    if not isinstance(files, dict) or LEARNT not in files:
        raise CheckpointError(f"expected the hashes of the files in {str(folder / CARD)!r}")
    for name, wanted in files.items():
        path = folder / name
        if path.name != name or not os.path.isfile(path):
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
        raise InputError(f"expected about to be serialisable as JSON, got: {e}") from e


def _pair(name: str) -> tuple[str, str]:
    return name, checkpoint.card_path(Path(name)).name


def networks_of(detector: Detector) -> list[Model]:
    """The distinct networks of a detector, its own first; not those inside another network."""
    found: list[Model] = []

    def look(module: nn.Module) -> None:
        if isinstance(module, Model):
            if not any(module is m for m in found):
                found.append(module)
            return
        for child in module.children():
            look(child)

    look(detector.model)
    look(detector)
    return found


def described(detector: Detector, networks: Sequence[Model]) -> dict[str, Any]:
    """The class of a detector and all arguments of its constructor; networks by index."""
    cls = type(detector)
    if _registered(cls.__name__) is not cls:
        raise CapabilityError(
            f"expected a detector of rood.detectors in a guard, got {cls.__name__}: another class "
            "could not be loaded again"
        )
    tree: dict[str, Any] = {"class": cls.__name__}
    for p in _parameters(cls):
        tree[p.name] = _plain(getattr(detector, p.name), networks, f"{cls.__name__}.{p.name}")
    return tree


def rebuilt(tree: Any, networks: Sequence[Model]) -> Detector:
    """The detector that `described` describes, not fitted."""
    name = tree.get("class") if isinstance(tree, dict) else None
    if not isinstance(name, str) or (cls := _registered(name)) is None:
        raise CheckpointError(f"expected the class of a detector of rood, got {name!r}")
    parameters = _parameters(cls)
    tree = without_removed(tree)
    if wrong := (set(tree) - {"class"}) ^ {p.name for p in parameters}:
        raise CheckpointError(
            f"the arguments of {name} differ in {', '.join(sorted(wrong))}: "
            "fit the guard again with this version of rood"
        )
    values = {p.name: _revived(tree[p.name], networks) for p in parameters}
    places = [values.pop(p.name) for p in parameters if p.kind is not p.KEYWORD_ONLY]
    if not all(map(_are_parts, places)) or any(map(_are_parts, values.values())):
        raise CheckpointError(f"expected networks or detectors inside {name}, got something else")
    try:
        return cls(*places, **config.arguments(cls, values, name))
    except (RoodError, TypeError, ValueError, AttributeError) as e:
        raise CheckpointError(f"{name} cannot be built: {e}") from e


def _parameters(cls: type[Detector]) -> list[inspect.Parameter]:
    _, *parameters = inspect.signature(cls.__init__).parameters.values()  # without self
    return parameters


def _registered(name: str) -> type[Detector] | None:
    try:
        return detectors.registry.by_class_name(name)
    except AttributeError:
        return None


def _plain(value: Any, networks: Sequence[Model], where: str) -> Any:
    if isinstance(value, Model):
        return {"network": next(i for i, m in enumerate(networks) if m is value)}
    if isinstance(value, Detector):
        return described(value, networks)
    if isinstance(value, nn.ModuleList | tuple | list):
        return [_plain(v, networks, where) for v in value]
    if not isinstance(value, _PLAIN):
        raise CapabilityError(
            f"expected a value that JSON can represent for {where}, got {type(value).__name__}: "
            "such a detector cannot be saved in a guard"
        )
    return value


def _revived(value: Any, networks: Sequence[Model]) -> Any:
    if isinstance(value, list):
        return tuple(_revived(v, networks) for v in value)
    if not isinstance(value, dict):
        return value
    if "class" in value:
        return rebuilt(value, networks)
    place = value.get("network")
    if type(place) is not int or not 0 <= place < len(networks):
        raise CheckpointError(f"expected one of {len(networks)} networks, got {place!r}")
    return networks[place]


def _are_parts(value: Any) -> bool:
    many = value if isinstance(value, tuple) else (value,)
    return bool(many) and all(isinstance(v, Model | Detector) for v in many)
