"""TOML in, frozen dataclass out and back, and an error for every key that is not a field."""

import dataclasses
import difflib
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from rood._parsing import toml_file
from rood.errors import ConfigError

T = TypeVar("T")


def load(cls: type[T], path: Path) -> T:
    """Read a TOML file into `cls`; every key must be a field of it."""
    return build(cls, read(path), where=path.name)


def read(path: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return toml_file(path)
    except FileNotFoundError as e:
        raise ConfigError(f"expected a settings file at {path}, found none") from e
    except OSError as e:
        raise ConfigError(f"expected a settings file at {path}: {e.strerror}") from e
    except ValueError as e:
        named = path.suffix == ".toml"
        hint = "" if named else f": name a network by --model {path}, images by --inside {path}"
        raise ConfigError(f"expected TOML in {path}, got something else: {e}{hint}") from e


def build(
    cls: type[T], values: Mapping[str, Any], where: str, keys: Mapping[str, str] | None = None
) -> T:
    """`cls(**values)` with each key and type checked; `keys` names fields otherwise in a file."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where}: expected a table, got {values!r:.80}")
    keys, kinds = keys or {}, _hints(cls)  # type: ignore[arg-type]  # a class is hashable
    fields = {keys.get(name, name): name for name in kinds}
    hints = {key: kinds[name] for key, name in fields.items()}
    for key in values:
        if key not in hints:
            close = difflib.get_close_matches(key, hints, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(hints)}"
            raise ConfigError(f"{where}: no setting is called {key!r}: {hint}")
    try:
        return cls(**{fields[k]: _convert(hints[k], v, f"{where}: {k}") for k, v in values.items()})
    except TypeError as e:
        raise ConfigError(f"{where}: {e}") from e


def check(kinds: Mapping[str, Any], values: Mapping[str, Any], where: str) -> None:
    """Refuse an entry that is missing or of another type than `kinds` says; others may be there."""
    for key, kind in kinds.items():
        if key not in values:
            raise ConfigError(f"{where}: expected {key!r}, got none")
        _convert(kind, values[key], f"{where}: {key}")


@lru_cache(maxsize=64)  # slow, and asked for each row of a table
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def arguments(
    make: Callable[..., object], values: Mapping[str, Any], where: str, *, but: Collection[str] = ()
) -> dict[str, Any]:
    """Every keyword-only argument of `make`, given or default, checked against its annotation."""
    hints = typing.get_type_hints(make.__init__ if inspect.isclass(make) else make)
    given = inspect.signature(make).parameters.values()
    known = [p for p in given if p.kind is p.KEYWORD_ONLY and p.name not in but]
    for p in known:
        if p.default is p.empty and p.name not in values:
            raise ConfigError(
                f"{where}: expected {p.name!r}, which has no default, got none: give it in a "
                f"settings file, under [{where}]"
            )
    fields = [(p.name, hints.get(p.name, object), p.default) for p in known]
    options: Any = build(dataclasses.make_dataclass("Options", fields), values, where)
    return dataclasses.asdict(options)


def dump(values: Mapping[str, Any]) -> str:
    """The values as TOML, tables last; None is left out."""
    there = {key: value for key, value in values.items() if value is not None}
    tables = {key: table for key, table in there.items() if isinstance(table, Mapping)}
    lines = [f"{_key(k)} = {_value(v)}" for k, v in there.items() if k not in tables]
    for key, table in tables.items():
        lines += ["", f"[{_key(key)}]"]
        lines += [f"{_key(k)} = {_value(v)}" for k, v in table.items() if v is not None]
    return "\n".join(lines).lstrip() + "\n"


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else _value(text)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        parts = (f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None)
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, bool | str):  # as in JSON, which lets this one character stand
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def _convert(hint: Any, value: Any, where: str) -> Any:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return build(hint, value, where)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and isinstance(value, list):
        return tuple(_convert(args[0], v, where) for v in value)
    if origin is list and isinstance(value, list):
        return [_convert(args[0], v, where) for v in value]
    if origin is dict and isinstance(value, dict):
        return {k: _convert(args[1], v, f"{where}.{k}") for k, v in value.items()}
    allowed = args if origin in (typing.Union, types.UnionType) else (hint,)
    if object in allowed:
        return value
    if float in allowed and type(value) is int:
        return float(value)
    if Path in allowed and isinstance(value, str):
        return Path(value)
    if origin is typing.Literal:
        if value not in args:
            raise ConfigError(
                f"{where}: expected one of {', '.join(map(repr, args))}, got {value!r:.80}"
            )
        return value
    if not any(type(value) is (typing.get_origin(a) or a) for a in allowed):
        name = getattr(hint, "__name__", str(hint))
        raise ConfigError(f"{where}: expected {name}, got {value!r:.80}")
    return value
