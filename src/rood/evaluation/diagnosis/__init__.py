"""Checks of a setup, one per file: are these the right network, images and detectors?"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from rood.data.base import ImageSet
from rood.errors import InputError
from rood.evaluation.diagnosis.base import Diagnosis, Setup, SetupCheck, Subject
from rood.registry import Registry

registry: Registry[SetupCheck] = Registry(__name__, SetupCheck)

__all__ = [
    "Diagnosis",
    "Setup",
    "SetupCheck",
    "Subject",
    "examine",
    "notes",
    "refuse",
    "registry",
    "with_notes",
]


@cache
def setup_checks() -> tuple[SetupCheck, ...]:
    """Every check, in the order in which their results are shown."""
    found = [registry.get(name)() for name in registry.names()]
    return tuple(sorted(found, key=lambda check: check.place))


def examine(setup: Setup, *, estimate: bool = False) -> Iterator[Diagnosis]:
    """What the checks say of a setup; with `estimate`, also what an audit of it will cost."""
    for check in setup_checks():
        if estimate or not check.estimates:
            yield from check.look(setup)


def refuse(found: Iterable[Diagnosis], *, anyway: bool) -> None:
    """Refuse a setup in which a check failed, unless the user wants to go on anyway."""
    for one in found:
        if one.status == "fail" and not anyway:
            raise InputError(f"{one.sentence()}; to go on as it is, give --anyway (anyway=True)")


def notes(found: Iterable[Diagnosis], sets: Collection[str]) -> list[str]:
    """What is not as it should be, one sentence each, without what is about an image set."""
    return [one.sentence() for one in found if one.status != "ok" and one.about not in sets]


def with_notes(found: Sequence[Diagnosis], sets: Mapping[str, ImageSet]) -> dict[str, ImageSet]:
    """The image sets, each with what is not as it should be of it."""
    said = [one for one in found if one.status != "ok"]
    mine = {n: [replace(one, about="").sentence() for one in said if one.about == n] for n in sets}
    return {n: replace(images, notes=(*images.notes, *mine[n])) for n, images in sets.items()}
