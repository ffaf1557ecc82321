"""Which axis of an array of images holds the channels."""

from collections.abc import Sequence

from rood.errors import DataError


def channels_axis(shape: Sequence[int], shown: str) -> int | None:
    """1 or 3 for (n, c, h, w) or (n, h, w, c); None for grey images (n, h, w)."""
    if len(shape) not in (3, 4) or 0 in shape:
        raise DataError(
            f"expected images of shape (n, h, w), (n, h, w, c) or (n, c, h, w) in {shown}, "
            f"got {tuple(shape)}"
        )
    if len(shape) == 3:
        return None
    last, first = shape[3] in (1, 3), shape[1] in (1, 3)
    if last == first:
        what = "both the second and the last axis could be" if last else "no axis is"
        raise DataError(
            f"expected 1 or 3 channels on the second or last axis in {shown}, got {tuple(shape)}: "
            f"{what} channels"
        )
    return 3 if last else 1
