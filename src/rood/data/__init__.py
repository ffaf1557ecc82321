"""Image sets: `load` reads them from a source, `split` divides them."""

import os

from rood.data.base import ImageSet, Shape, Source, split
from rood.errors import expect
from rood.registry import Registry

__all__ = ["ImageSet", "Shape", "Source", "load", "registry", "split"]

registry: Registry[Source] = Registry(
    __name__, Source, beside=("cache", "contamination", "given", "images")
)


def __dir__() -> list[str]:
    return __all__


def load(
    spec: str | os.PathLike[str],
    *,
    shape: Shape | None = None,
    limit: int | None = None,
    skip_bad: bool = False,
    groups: str | None = None,
) -> ImageSet:
    """Read images from a source.

    Parameters
    ----------
    spec : str or path
        "KIND:ARGUMENT", such as "folder:PATH", "npz:PATH", "digits:inside" or "procedural:noise",
        or a bare path. `rood.data.registry.names()` lists the kinds. Paths may contain ~ and
        $VARIABLES. Some kinds modify another source: "share:0-0.6@SPEC", "patch_shuffle:4@SPEC",
        "balanced:1000@SPEC", "spliced:3000@SPEC", "stacked:3000@SPEC", "turned:0@SPEC".
    shape : (channels, height, width), optional
        Convert the images to this shape; by default they keep their own.
    limit : int, optional
        Read at most so many images, evenly spaced.
    skip_bad : bool
        Skip unreadable files and count them in the notes, instead of raising.
    groups : str, optional
        What images have in common that are not independent, such as frames of a video: "folder"
        for the parent folder of each, or the name of a column (imglist, hf) or an array (npz).

    Returns
    -------
    ImageSet

    Raises
    ------
    UnknownNameError
        If no source is called KIND.
    DataError
        If images are missing or cannot be read.
    InputError
        If the argument or an option has no meaning.
    CapabilityError
        If the source needs a package that is not installed.

    Examples
    --------
    >>> from rood import data
    >>> data.load("procedural:stripes,n=100", shape=(1, 28, 28))
    <ImageSet 'stripes': 100 images of shape (1, 28, 28), uint8, unlabelled>
    """
    what = "a spec or path of images, such as 'folder:DIR'"
    expect(isinstance(spec, str | os.PathLike), what, type(spec).__name__)
    kind, argument = _parse(os.fspath(spec))
    source = registry.get(kind)()
    return source.load(argument, shape=shape, limit=limit, skip_bad=skip_bad, groups=groups)


def _parse(spec: str) -> tuple[str, str]:
    kind, colon, argument = spec.partition(":")
    if colon and kind in registry.files:
        return kind, argument
    if os.path.isdir(spec):
        return "folder", spec
    if spec.lower().endswith(".npz"):
        return "npz", spec
    if not colon and (os.sep in spec or os.path.exists(spec)):
        return "folder", spec  # whose error says what is wrong with the path
    return kind, argument
