"""Everything that a trained network depends on, read from TOML or options, or by its name."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from rood import config
from rood.errors import ConfigError, InputError
from rood.models import zoo
from rood.threat import Linf, parse
from rood.training.objectives import Objective, registry
from rood.training.objectives.cross_entropy import CrossEntropy
from rood.training.settings import Settings

# beyond it ALOE's rule, floor(255 eps + 1) steps of 1/255, is expensive
_FINE = 4 / 255
_COARSE_STEPS = 6


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Data, network, objective and settings of one training."""

    data: str  # split where nothing is held out
    held_out: str | None = None  # labelled images to measure accuracy on
    outliers: str | None = None  # SPEC[,SPEC...]
    # OOD sets for later tests; outliers that repeat one of their images are left out
    unseen: tuple[str, ...] = ()
    size: int | None = None  # side in pixels; None: as the images are
    skip_bad: bool = False
    backbone: str = "small_cnn"
    architecture: dict[str, object] = field(default_factory=dict)
    mean: tuple[float, ...] = ()  # per channel; empty: of the training images
    std: tuple[float, ...] = ()
    objective: Objective = field(default_factory=CrossEntropy)
    settings: Settings = field(default_factory=Settings)


def names() -> list[str]:
    """The networks that have a recipe here: those of rood, of rood-zoo and of `ROOD_ZOO`."""
    return list(_tables())


def get(name: str) -> Recipe:
    """The recipe of the network called `name`."""
    tables = _tables()
    if name not in tables:
        raise zoo.missing("recipe", name, tables)
    return read(_complete(name, tables), f"recipe {name}")


def command(name: str) -> str:
    """The command that trains the network called `name`."""
    return f"rood train --name {name} --out {name}.safetensors"


def _tables() -> dict[str, dict[str, Any]]:
    own = tomllib.loads((files("rood.training") / "recipes.toml").read_text())
    for file in reversed(zoo.recipe_files()):  # the first one has the last word
        own |= config.read(file)
    return own


def _complete(name: str, tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A recipe's table together with the one that it is `like`."""
    own = dict(tables[name])
    if "like" not in own:
        return own
    base = own.pop("like")
    if base not in tables or base == name:
        raise ConfigError(f"recipe {name}: expected `like` to name another recipe, got {base!r}")
    whole = _complete(base, {k: v for k, v in tables.items() if k != name})  # no circles
    settings = whole.get("settings", {}) | own.get("settings", {})
    return whole | own | {"settings": settings}


def changed(values: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The values with options on top; options of settings and objective need no table."""
    result = {"settings": {}, "objective": "cross_entropy"} | dict(values)
    for key, value in options.items():
        if key in Settings.__dataclass_fields__:
            if not isinstance(result["settings"], dict):
                raise ConfigError(f"expected a table of settings, got {result['settings']!r}")
            result["settings"] = result["settings"] | {key: value}
        elif key == "eps":
            result["objective"] = _named(result["objective"]) | {key: value}
        else:
            result[key] = value
    return result


def read(values: Mapping[str, Any], where: str) -> Recipe:
    """A recipe from TOML; the objective is a name, or a table with name and options."""
    given = dict(values)
    if "data" not in given:
        raise ConfigError(f"{where}: expected `data`, the images to train on, got none")
    objective = _objective(given.pop("objective", "cross_entropy"), f"{where}: objective")
    return replace(config.build(Recipe, given, where), objective=objective)


def _objective(said: object, where: str) -> Objective:
    options = dict(_named(said, where))
    cls: Any = registry.get(options.pop("name"))
    if "eps" in options and "eps" not in cls.__dataclass_fields__:
        raise InputError(f"expected no eps for {cls.__module__.rpartition('.')[2]}, got one")
    for key in ("eps", "step"):
        if isinstance(options.get(key), str):
            options[key] = _distance(options[key])
    if (steps := cls.__dataclass_fields__.get("steps")) is not None:
        options = _with_steps(options, steps.default)
    return config.build(cls, options, where)


def _named(said: object, where: str = "objective") -> dict[str, Any]:
    table = {"name": said} if isinstance(said, str) else said
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise ConfigError(f"{where}: expected a name or a table with a `name`, got {said!r}")
    return table


def _with_steps(options: dict[str, Any], default: int | None) -> dict[str, Any]:
    """Complete the steps of the inner attack from those of eps, steps and step that are given."""
    eps, steps = options.get("eps"), options.get("steps", default)
    if not isinstance(eps, int | float) or "step" in options:
        return options
    if steps is None and eps > _FINE:
        steps = _COARSE_STEPS
    return options if steps is None else options | {"steps": steps, "step": 2 * eps / steps}


def _distance(text: str) -> float:
    threat = parse(text)
    if not isinstance(threat, Linf):
        raise InputError(f"expected an L-infinity eps to train with, such as 8/255, got {text!r}")
    return threat.eps
