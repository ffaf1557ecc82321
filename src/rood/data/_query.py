"""NAME?key=value&key=value: the arguments of sources that need more than a name."""

from collections.abc import Collection
from urllib.parse import parse_qsl

from rood.errors import InputError
from rood.registry import unknown


def divided(argument: str, known: Collection[str] | None = None) -> tuple[str, dict[str, str]]:
    """The name, and what follows it by key; only `known` keys, where they are given."""
    name, _, query = argument.partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError as e:
        raise InputError(f"expected NAME?key=value&key=value, got {argument!r}") from e
    if not name:
        raise InputError(f"expected a name, got {argument!r}")
    for key, _ in pairs:
        if known is not None and key not in known:
            raise unknown("option", key, known)
    return name, dict(pairs)
