"""The array shapes used across modules, one letter per axis.

b batch · c h w image · k classes · d features · n fitted samples · o outliers
"""

from collections.abc import Iterable
from typing import TypeAlias

from jaxtyping import Float, Int, Shaped
from torch import Tensor

Images: TypeAlias = Float[Tensor, "b c h w"]
Scores: TypeAlias = Float[Tensor, " b"]
Labels: TypeAlias = Int[Tensor, " b"]
Logits: TypeAlias = Float[Tensor, "b k"]
Features: TypeAlias = Float[Tensor, "b d"]
# "_": the last batch may be of another size
Batches: TypeAlias = Iterable[tuple[Float[Tensor, "_ c h w"], Int[Tensor, " _"]]]


def wide(v: Shaped[Tensor, " b"]) -> Shaped[Tensor, "b 1 1 1"]:
    """One number for each image, in the shape of images."""
    return v.view(-1, 1, 1, 1)
