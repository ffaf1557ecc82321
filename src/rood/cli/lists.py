"""Options that hold several values, with commas."""

from rood.errors import InputError


def listed(option: str, text: str | None) -> tuple[str, ...] | None:
    """ "a, b" as ("a", "b"); None where the option was not given."""
    if text is None:
        return None
    parts = tuple(p.strip() for p in text.split(",") if p.strip())
    if not parts:
        raise InputError(f"expected names or numbers with commas for {option}, got {text!r}")
    return parts


def numbers(option: str, text: str | None) -> tuple[float, ...] | None:
    """ "0.4,0.5" as (0.4, 0.5); None where the option was not given."""
    try:
        return None if text is None else tuple(map(float, listed(option, text) or ()))
    except ValueError as e:
        raise InputError(f"expected numbers with commas for {option}, got {text!r}") from e
