"""Several sources as one."""

import re
from collections.abc import Sequence
from dataclasses import replace

import torch

from rood import data
from rood.data.base import ImageSet, LoadOptions, Source
from rood.errors import InputError, expect


class Joined(Source):
    """SPEC,SPEC[,...]: the images of several sources of the same classes, one after the other.

    The first one decides the shape, where none is asked for.
    """

    def read(self, argument: str, options: LoadOptions) -> ImageSet:
        specs = listed(argument)
        expect(len(specs) > 1, "joined:SPEC,SPEC with at least two sources", repr(argument))
        parts: list[ImageSet] = []
        for spec in specs:
            shape = parts[0].shape if parts else options.shape
            loaded = data.load(spec, shape=shape, skip_bad=options.skip_bad, groups=options.groups)
            parts.append(loaded)
        return _labelled(parts, argument).thin(options.limit)


def listed(spec: str) -> list[str]:
    """The specs in SPEC,SPEC: a comma separates them where a kind of source follows."""
    kinds = "|".join(map(re.escape, data.registry.files))
    return [s.strip() for s in re.split(rf",(?=\s*(?:{kinds}):)", spec)]


def together(parts: Sequence[ImageSet]) -> ImageSet:
    """The images of all parts, without labels."""
    if len(parts) == 1:
        return replace(parts[0], labels=None, classes=(), files=())
    eight_bit = all(p.images.dtype == torch.uint8 for p in parts)
    images = torch.cat([p.images if eight_bit else p.pixels() for p in parts])
    notes = tuple(f"{p.name}: {note}" for p in parts for note in p.notes)
    return ImageSet(name="+".join(p.name for p in parts), images=images, notes=notes)


def _labelled(parts: Sequence[ImageSet], argument: str) -> ImageSet:
    """All parts, with what every one of them has: labels, files, groups."""
    classes = parts[0].classes
    for p in parts[1:]:
        if p.classes != classes:
            raise InputError(
                f"expected sources of the same classes in {argument!r}, got {len(classes)} in "
                f"{parts[0].name!r} and {len(p.classes)}, or other ones, in {p.name!r}"
            )
    labels = [p.labels for p in parts if p.labels is not None]
    whole = len(labels) == len(parts)
    every = lambda field: all(getattr(p, field) for p in parts)
    all_of = lambda field: tuple(v for p in parts for v in getattr(p, field))
    return replace(
        together(parts),
        labels=torch.cat(labels) if whole else None,
        classes=classes if whole else (),
        files=all_of("files") if every("files") else (),
        groups=all_of("groups") if every("groups") else (),
    )
