"""What sources share that change the images of another one, written KIND:OWN@SPEC."""

from rood import data
from rood.data.base import ImageSet, Shape
from rood.errors import InputError


def divided(argument: str, form: str) -> tuple[str, str]:
    """OWN and SPEC; `form` says in a message what they should be."""
    own, _, spec = argument.partition("@")
    if not own.strip() or not spec.strip():
        raise InputError(f"expected {form}, got {argument!r}")
    return own.strip(), spec.strip()


def whole(number: str, least: int, form: str, argument: str) -> int:
    """A whole number of at least `least`."""
    if not number.isdecimal() or int(number) < least:
        raise InputError(f"expected {form} with numbers of at least {least}, got {argument!r}")
    return int(number)


def inner(spec: str, shape: Shape | None, skip_bad: bool) -> ImageSet:
    """All images of the other source."""
    return data.load(spec, shape=shape, skip_bad=skip_bad)
