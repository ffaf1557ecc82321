"""Trained networks by name: the demo's two, those of the package rood-zoo, and your own.

A folder that `ROOD_ZOO` names comes first, then rood-zoo where it is installed, then what rood
itself ships.
"""

import importlib.util
import os
from pathlib import Path
from typing import Any

from rood.errors import CapabilityError
from rood.models import checkpoint
from rood.models.model import Model
from rood.registry import unknown

VARIABLE = "ROOD_ZOO"
_SHIPPED = Path(__file__).parent / "weights"
# what rood-zoo holds, for a helpful sentence where it is not installed
_KINDS = ("cifar10-", "cifar100-", "gtsrb-", "svhn-", "mnist-", "fashion-", "digits-")
_SUFFIX = ".safetensors"


def folders() -> list[Path]:
    """Where networks are looked for, first found first taken."""
    own = os.environ.get(VARIABLE)
    found = [Path(own).expanduser()] if own else []
    package = importlib.util.find_spec("rood_zoo")
    if package is not None and package.submodule_search_locations:
        found.append(Path(next(iter(package.submodule_search_locations))) / "weights")
    return [*found, _SHIPPED]


def names() -> list[str]:
    """Every network there is, sorted."""
    files = (f for folder in folders() if folder.is_dir() for f in folder.iterdir())
    return sorted({f.name.removesuffix(_SUFFIX) for f in files if f.name.endswith(_SUFFIX)})


def path(name: str) -> Path:
    """The weights file of the network called `name`; its card lies beside it."""
    for folder in folders():
        if (file := folder / f"{name}{_SUFFIX}").is_file():
            return file
    if name.startswith(_KINDS) and importlib.util.find_spec("rood_zoo") is None:
        raise CapabilityError(
            f"{name!r} is not among the networks installed here ({', '.join(names())}): the others "
            "are in rood-zoo, pip install rood-zoo, or pip install ./zoo in a checkout of rood"
        )
    raise unknown("trained network", name, names())


def load(name: str) -> Model:
    """The network called `name`, in eval mode with frozen weights."""
    return checkpoint.load(path(name))


def card(name: str) -> dict[str, Any]:
    """What is known about a network: data, objective, accuracy, the command that trains it."""
    return checkpoint.read_card(path(name))
