"""Trained networks by name: those of a folder of yours, of rood-zoo and of rood itself.

The folder that `ROOD_ZOO` names comes first, then rood-zoo where it is installed, then the two
networks that rood ships.
"""

import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rood.errors import UnknownNameError
from rood.models import checkpoint
from rood.models.model import Model
from rood.registry import unknown

VARIABLE = "ROOD_ZOO"
_SHIPPED = Path(__file__).parent / "weights"
_SUFFIX = ".safetensors"


def folders() -> list[Path]:
    """The folders with weights and cards, in the order in which a name is looked up."""
    own, package = _own(), _package()
    found = [own] if own else []
    return [*found, package / "weights", _SHIPPED] if package else [*found, _SHIPPED]


def recipe_files() -> list[Path]:
    """The recipes.toml of `ROOD_ZOO` and of rood-zoo, as far as there are any, in that order."""
    files = (folder / "recipes.toml" for folder in (_own(), _package()) if folder)
    return [file for file in files if os.path.isfile(file)]


def names() -> list[str]:
    """Every network there is, sorted."""
    files = (f for folder in folders() if os.path.isdir(folder) for f in folder.iterdir())
    return sorted({f.name.removesuffix(_SUFFIX) for f in files if f.name.endswith(_SUFFIX)})


def path(name: str) -> Path:
    """The weights file of the network called `name`; its card lies beside it."""
    for folder in folders():
        if os.path.isfile(file := folder / f"{name}{_SUFFIX}"):
            return file
    raise missing("trained network", name, names())


def load(name: str) -> Model:
    """Load a trained network, in eval mode with frozen weights.

    Parameters
    ----------
    name : str
        A name of `names()`, such as "digits-aloe".

    Returns
    -------
    Model
        The network, on the CPU.

    Raises
    ------
    UnknownNameError
        There is no such network here; the message says how to get rood-zoo.

    Examples
    --------
    >>> import rood
    >>> rood.zoo.load("digits-ce").classes
    6
    """
    return checkpoint.load(path(name))


def card(name: str) -> dict[str, Any]:
    """What is known about a network: data, objective, accuracy, the command that trains it."""
    return checkpoint.read_card(path(name))


def missing(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that is not here; it says how to get rood-zoo where that is missing."""
    if _package():
        return unknown(kind, name, known)
    return UnknownNameError(
        f"expected a {kind} that is installed ({', '.join(sorted(known))}), got {name!r}: others "
        "come with rood-zoo, pip install rood-zoo, or pip install ./zoo in a checkout of rood"
    )


def _own() -> Path | None:
    own = os.environ.get(VARIABLE)
    return Path(own).expanduser() if own else None


def _package() -> Path | None:
    package = importlib.util.find_spec("rood_zoo")
    places = package.submodule_search_locations if package else None
    return Path(next(iter(places))) if places else None
