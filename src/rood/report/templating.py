"""One way to fill in a page: everything escaped, nothing undefined."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined


def asset(package: str, name: str) -> str:
    """A file of the package's templates."""
    return files(package).joinpath("templates", name).read_text(encoding="utf-8")


def environment(package: str, filters: Mapping[str, Callable[..., Any]]) -> Environment:
    """Templates of the package, with filters of its own."""
    made = Environment(
        loader=FunctionLoader(partial(asset, package)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= filters
    return made
