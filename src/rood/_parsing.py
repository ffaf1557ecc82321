"""JSON and TOML of strangers: no larger, deeper or odder than what people and rood write."""

import json
import math
import os
import tomllib
from pathlib import Path
from typing import Any

from rood._files import TEXT, as_utf8, content, opened

DEPTH = 64  # levels of nesting


def json_of(text: str | bytes) -> Any:
    """The value of a JSON text; ValueError for numbers beyond 64 bits and for deep nesting."""
    try:
        return _sound(json.loads(text, parse_int=_whole))
    except RecursionError as e:
        raise _too_deep() from e


def json_file(path: Path, most: int = TEXT) -> Any:
    """The value of a JSON file; OSError or ValueError where it is none."""
    return json_of(content(path, most))


def toml_file(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; OSError or ValueError where it is none."""
    try:
        found: dict[str, Any] = _sound(tomllib.loads(content(path).decode("utf-8")))
    except RecursionError as e:
        raise _too_deep() from e
    return found


def tensor_shapes(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type and shape of every tensor in a safetensors file, whose size must be the one it says."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        n = int.from_bytes(file.read(8), "little")
        if not 2 <= n <= min(TEXT, size - 8):
            raise ValueError(f"expected a header of the file's {size:,} bytes, got one of {n:,}")
        head = json_of(file.read(n))
    if not isinstance(head, dict):
        raise ValueError("expected a table of tensors as the header")
    head.pop("__metadata__", None)
    found, ends = {}, [0]
    for name, about in head.items():
        kind, shape, (start, end) = (about[k] for k in ("dtype", "shape", "data_offsets"))
        numbers = (*shape, start, end)
        if not isinstance(kind, str) or not all(type(d) is int and d >= 0 for d in numbers):
            raise ValueError(f"expected a type and a shape of {name!r}")
        # of at least a bit each; torch counts the elements of empty tensors too
        if math.prod(shape) > 8 * (end - start) or math.prod(d or 1 for d in shape) >= 2**63:
            raise ValueError(f"expected {name!r} of the shape that its bytes have, got {shape}")
        found[name] = kind, tuple(shape)
        ends.append(end)
    if max(ends) != size - 8 - n:
        raise ValueError(f"expected {max(ends):,} bytes of tensors, got {size - 8 - n:,}")
    return found


def _whole(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**64:
        raise ValueError(f"expected whole numbers of at most 64 bits, got {digits[:20]}...")
    return int(digits)


def _sound(value: Any, level: int = 0) -> Any:
    """The value, whose strings can be written as UTF-8; ValueError if it is nested deeply."""
    if isinstance(value, str):
        return value if value.isascii() else as_utf8(value)
    if not isinstance(value, dict | list):
        return value
    if level == DEPTH:
        raise _too_deep()
    if isinstance(value, list):
        return [_sound(v, level + 1) for v in value]
    return {_sound(k): _sound(v, level + 1) for k, v in value.items()}


def _too_deep() -> ValueError:
    return ValueError(f"expected at most {DEPTH} levels of nesting, got more")
