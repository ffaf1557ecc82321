"""Image sets from folders, .npz files, the demo and procedures; `load` finds the source."""

import os
from typing import Unpack

from rood.data.base import ImageSet, LoadOptions, Shape, Source, split
from rood.registry import Registry

__all__ = ["ImageSet", "Shape", "Source", "load", "registry", "split"]

registry: Registry[Source] = Registry(__name__, Source, beside=("contamination",))


def load(spec: str, **options: Unpack[LoadOptions]) -> ImageSet:
    """Read "folder:PATH", "npz:PATH", "digits:inside", "procedural:noise", or a bare path.

    Paths may hold ~ and $VARIABLES. Some kinds change what another one gives: "share:0-0.6@SPEC",
    "patch_shuffle:4@SPEC", "balanced:1000@SPEC". The options are those of `Source.load`: shape,
    limit, skip_bad.
    """
    kind, argument = _parse(spec)
    return registry.get(kind)().load(argument, **options)


def _parse(spec: str) -> tuple[str, str]:
    kind, colon, argument = spec.partition(":")
    if colon and kind in registry.files:
        return kind, argument
    if os.path.isdir(spec):
        return "folder", spec
    if spec.lower().endswith(".npz"):
        return "npz", spec
    if not colon and (os.sep in spec or os.path.exists(spec)):
        return "folder", spec  # which says what is wrong with the path
    return kind, argument
