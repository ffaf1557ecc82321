"""The trained networks that come with rood, by name."""

from importlib.resources import as_file, files
from typing import Any

from rood.models import checkpoint
from rood.models.model import Model
from rood.registry import unknown

_FOLDER = files("rood.models") / "weights"


def names() -> list[str]:
    """Every network there is, sorted."""
    suffix = ".safetensors"
    found = (f.name for f in _FOLDER.iterdir())
    return sorted(n.removesuffix(suffix) for n in found if n.endswith(suffix))


def load(name: str) -> Model:
    """The network called `name`, in eval mode with frozen weights."""
    _check(name)
    with as_file(_FOLDER) as folder:
        return checkpoint.load(folder / f"{name}.safetensors")


def card(name: str) -> dict[str, Any]:
    """What is known about a network: data, objective, accuracy, the command that trains it."""
    _check(name)
    with as_file(_FOLDER) as folder:
        return checkpoint.read_card(folder / f"{name}.safetensors")


def _check(name: str) -> None:
    if name not in names():
        raise unknown("trained network", name, names())
