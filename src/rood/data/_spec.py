"""Parsing of a source's argument: the part of a spec after its kind."""

from collections.abc import Collection
from urllib.parse import parse_qsl

from rood.errors import InputError
from rood.registry import unknown


def nested(argument: str, form: str) -> tuple[str, str]:
    """OWN and SPEC of OWN@SPEC, for sources that modify another one; `form` is for the error."""
    own, _, spec = argument.partition("@")
    if not own.strip() or not spec.strip():
        raise InputError(f"expected {form}, got {argument!r}")
    return own.strip(), spec.strip()


def whole(number: str, least: int, form: str, argument: str) -> int:
    """A whole number of at least `least`."""
    if not number.isdecimal() or int(number) < least:
        raise InputError(f"expected {form} with numbers of at least {least}, got {argument!r}")
    return int(number)


def counted(argument: str, least: int, form: str) -> tuple[int, int, str]:
    """NUMBER, seed and SPEC of NUMBER[,seed=0]@SPEC."""
    own, spec = nested(argument, form)
    number, comma, option = own.partition(",")
    key, _, seed = option.partition("=")
    if comma and key.strip() != "seed":
        raise InputError(f"expected {form}, got {argument!r}")
    n = whole(number.strip(), least, form, argument)
    return n, whole(seed.strip() or "0", 0, form, argument), spec


def query(argument: str, known: Collection[str] | None = None) -> tuple[str, dict[str, str]]:
    """NAME and the options of NAME?key=value&key=value; only `known` keys, if given."""
    name, _, text = argument.partition("?")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True) if text else []
    except ValueError as e:
        raise InputError(f"expected NAME?key=value&key=value, got {argument!r}") from e
    if not name:
        raise InputError(f"expected a name, got {argument!r}")
    for key, _ in pairs:
        if known is not None and key not in known:
            raise unknown("option", key, known)
    return name, dict(pairs)
