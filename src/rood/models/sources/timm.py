"""Networks of timm, with mean, std and size from their configuration."""

import importlib
from pathlib import Path
from typing import Any

from rood._offline import offline
from rood.errors import CapabilityError, expect_trust, first_line
from rood.models.sources.base import ForeignNetwork, Mode
from rood.models.sources.python import fill

MODES: dict[str, Mode] = {"nearest": "nearest", "bilinear": "bilinear", "bicubic": "bicubic"}


def find(name: str, weights: str | Path | None, trust: bool) -> ForeignNetwork:
    """timm.create_model(name), pretrained, or with the weights of a file."""
    # hf-hub:NAME, local-dir:FOLDER: a configuration and weights of anybody
    if ":" in name.removeprefix("timm:"):
        runs = "timm unpickles weights of that place where there are no safetensors"
        expect_trust(trust, f"timm:{name}", runs)
    try:
        timm = importlib.import_module("timm")
        data = importlib.import_module("timm.data")
    except Exception as e:  # with a mismatched torchvision it fails in many ways
        why = "pip install 'rood[timm]'" if isinstance(e, ModuleNotFoundError) else first_line(e)
        raise CapabilityError(f"needs timm, which does not import: {why}") from e
    try:
        net = timm.create_model(name, pretrained=weights is None)
    except Exception as e:
        where = " (ROOD_OFFLINE is set: only what was loaded before)" if offline() else ""
        raise CapabilityError(f"timm has no pretrained {name!r}{where}: {first_line(e)}") from e
    if weights is not None:
        fill(net, weights)
    config: dict[str, Any] = data.resolve_model_data_config(net)
    channels, height, width = config["input_size"]
    crop = float(config.get("crop_pct") or 1)
    note = f"images are resized without the centre crop of {crop:.3g} of its own preprocessing"
    own = getattr(net, "pretrained_cfg", None) or {}
    return ForeignNetwork(
        net=net,
        name=name,
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        shape=(channels, height, width),
        mode=MODES.get(config.get("interpolation", "bilinear"), "bilinear"),
        classes=tuple(own.get("label_names") or ()),
        notes=(note,) if crop < 1 else (),
        facts={"crop_pct": crop},
    )
