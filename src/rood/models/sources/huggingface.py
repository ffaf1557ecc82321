"""Image classifiers of the Hugging Face hub, or of a folder in its format."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rood._lazy import optional
from rood._offline import offline
from rood.data.base import Shape
from rood.errors import CapabilityError, expect_trust, first_line
from rood.models.sources.base import ForeignNetwork, Mode
from rood.models.sources.python import fill

MODES: dict[int, Mode] = {0: "nearest", 2: "bilinear", 3: "bicubic"}  # Pillow's constants


def find(name: str, weights: str | Path | None, trust: bool) -> ForeignNetwork:
    """A model of AutoModelForImageClassification; mean, std and size from its image processor."""
    net, config, settings = _read(name, trust)
    if weights is not None:
        fill(net, weights)
    notes: list[str] = []
    if not settings:
        notes.append("no image processor was found: pixels are not normalised")
    shape = _shape(config, settings)
    if settings.get("do_center_crop") or settings.get("crop_pct"):
        notes.append("images are resized without the centre crop of its own preprocessing")
    mean, std = normalisation(settings)
    labels = getattr(config, "id2label", None) or {}
    return ForeignNetwork(
        net=net,
        name=name,
        mean=mean,
        std=std,
        shape=shape,
        mode=MODES.get(settings.get("resample", 2), "bilinear"),
        classes=[str(labels[k]) for k in sorted(labels, key=int)],
        notes=tuple(notes),
        facts={"architecture": type(net).__name__},
    )


def normalisation(settings: Mapping[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std for pixels in [0, 1], whatever range the processor rescales to."""
    if not settings:
        return (0.0,), (1.0,)
    scale = (
        255 * settings.get("rescale_factor", 1 / 255) if settings.get("do_rescale", True) else 255.0
    )
    scale = 1.0 if abs(scale - 1) < 1e-6 else scale  # 1/255 rounded to six digits
    shift = 1.0 if settings.get("rescale_offset") else 0.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    if settings.get("do_normalize", True) and settings.get("image_mean"):
        mean, std = (_several(settings[f"image_{k}"]) for k in ("mean", "std"))
    return tuple((m + shift) / scale for m in mean), tuple(s / scale for s in std)


def _several(value: Any) -> tuple[float, ...]:
    return tuple(map(float, value)) if isinstance(value, list | tuple) else (float(value),)


def _shape(config: Any, settings: Mapping[str, Any]) -> Shape | None:
    """The input shape: of the crop if there is one, else of the resized image."""
    cropped = settings.get("do_center_crop") and settings.get("crop_size")
    size = cropped or settings.get("size") or getattr(config, "image_size", None)
    if isinstance(size, Mapping):
        edge = size.get("shortest_edge")
        size = (size.get("height", edge), size.get("width", edge))
    if isinstance(size, int):
        size = (size, size)
    if not size or not all(isinstance(n, int) for n in size):
        return None
    return int(getattr(config, "num_channels", 3)), int(size[0]), int(size[1])


def _read(name: str, trust: bool) -> tuple[Any, Any, Mapping[str, Any]]:
    transformers = optional("transformers", "hub")
    place = str(Path(name).expanduser()) if os.path.isdir(Path(name).expanduser()) else name
    local = offline() or place != name or os.path.isdir(Path(name))
    # safetensors only: the other format is a pickle
    options = {"local_files_only": local, "use_safetensors": True, "trust_remote_code": trust}
    try:
        net = transformers.AutoModelForImageClassification.from_pretrained(place, **options)
    except (OSError, ValueError, RuntimeError) as e:
        own_code = "trust_remote_code" in str(e)  # what transformers tells its callers to set
        expect_trust(trust or not own_code, f"hf:{name}", "transformers would run its Python files")
        reason = first_line(e)
        where = "on this machine" if local else "on the hub"
        raise CapabilityError(
            f"expected an image classifier {where} at {name!r}, got: {reason}"
        ) from e
    try:
        # only the settings: the image processor may need torchvision
        processor = transformers.ImageProcessingMixin
        settings, _ = processor.get_image_processor_dict(place, local_files_only=local)
    except (OSError, ValueError):
        settings = {}
    return net.float(), net.config, settings
