"""Networks by name: the zoo's, rood's checkpoints, hubs, exported programs, Python functions."""

import importlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rood.data.base import Shape
from rood.errors import InputError
from rood.models import checkpoint, zoo
from rood.models.model import Model
from rood.models.sources.base import ForeignNetwork

_PYTHON = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_HUBS = {"hf": "huggingface", "timm": "timm"}
_FILES = {".pt2": "exported"} | dict.fromkeys((".pt", ".pth", ".ts", ".torchscript"), "torchscript")
KINDS = "hf:NAME, timm:NAME, FILE.pt2, TorchScript FILE.pt, or package.module:function"


def load_network(
    spec: str,
    *,
    weights: str | Path | None = None,  # tensors for a network whose source has none
    mean: Sequence[float] | None = None,  # None: what the source says, else 0
    std: Sequence[float] | None = None,
    shape: Shape | None = None,  # of the images to come; None: what the source says
    trust: bool = False,  # whether a file or a hub may run its own code
) -> tuple[Model, dict[str, Any]]:
    """Load a network in eval mode with frozen weights, and its card.

    spec is a name of the zoo; a checkpoint of rood, .safetensors; hf:NAME or hf:FOLDER of the
    Hugging Face hub; timm:NAME; a .pt2 file of torch.export; a TorchScript file; or
    package.module:function, which returns an nn.Module or a rood Model. The card holds at least
    shape, classes, mean, std and notes. Files and hub models that run code when they are loaded
    need `trust`; SECURITY.md lists them.
    """
    if not has_card(spec):
        found = find_network(spec, weights=weights, mean=mean, std=std, trust=trust)
        return found.build(shape)
    if any(v is not None for v in (weights, mean, std)):
        raise InputError(f"expected no weights, mean or std beside {spec!r}, whose card has them")
    if spec in zoo.names():
        model, card = zoo.load(spec), zoo.card(spec)
    else:
        model, card = checkpoint.load(spec), checkpoint.read_card(spec)
    return model, {"notes": [], "logits_only": False} | card


def find_network(
    spec: str,
    *,
    weights: str | Path | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    trust: bool = False,
) -> ForeignNetwork:
    """Find a third-party network; `build` makes it a `Model` once the image shape is known.

    package.module:function is the caller's own word and needs no `trust`.
    """
    kind, _, rest = spec.partition(":")
    on_a_hub = kind in _HUBS and bool(rest)
    file = _HUBS[kind] if on_a_hub else _FILES.get(Path(spec).suffix.lower())
    if file is None and is_function(spec):
        file = "python"
    if file is None and (Path(spec).suffix or Path(spec).name != spec):
        raise InputError(f"expected a checkpoint of rood, .safetensors, or {KINDS}, got {spec!r}")
    if file is None:
        raise zoo.missing("trained network", spec, zoo.names())
    # imported on demand: transformers alone takes seconds
    source = importlib.import_module(f"rood.models.sources.{file}")
    found: ForeignNetwork = source.find(rest if on_a_hub else spec, weights, trust)
    changes = {k: tuple(v) for k, v in (("mean", mean), ("std", std)) if v is not None}
    return replace(found, name=spec, **changes)  # type: ignore[arg-type]


def has_card(spec: str) -> bool:
    """Whether the network comes with a card of rood: one of the zoo or a checkpoint."""
    return spec in zoo.names() or spec.endswith(".safetensors")


def is_function(spec: str) -> bool:
    """Whether spec has the form package.module:function."""
    return _PYTHON.fullmatch(spec) is not None
