"""Filling in a page: everything escaped, nothing undefined, data as JSON, a strict policy."""

import base64
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined


def asset(package: str, name: str) -> str:
    """A file of the package's templates."""
    return files(package).joinpath("templates", name).read_text(encoding="utf-8")


def environment(package: str, filters: Mapping[str, Callable[..., Any]]) -> Environment:
    """Templates of the package, with its filters."""
    made = Environment(
        loader=FunctionLoader(partial(asset, package)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= filters
    return made


def policy(scripts: Iterable[str], images: str = "data:") -> str:
    """A content policy that lets exactly our own scripts run and nothing be fetched."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(d).decode()}'" for d in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        f"img-src {images}; base-uri 'none'; form-action 'none'"
    )


def embedded(value: object) -> str:
    """JSON that can stand inside a script element: nothing in it ends the element, NaN is null."""
    text = json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
