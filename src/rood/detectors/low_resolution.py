"""A detector of enlarged images: the attacker perturbs the pixels of the small image."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import interpolate

from rood.detectors.base import Detector, ScoreFunction
from rood.detectors.msp import MSP
from rood.errors import InputError
from rood.models.model import Model
from rood.shapes import Batches, Images, Labels, Scores


class LowResolution(Detector):
    r"""s(x) = s0(resize(x)), for any detector s0 and a differentiable bilinear resize.

    Fort, *Adversarial vulnerability of powerful near out-of-distribution detection*, 2022,
    arXiv:2201.07012: budgets are then measured on the small image. Half-pixel centres and no
    anti-aliasing, as TensorFlow resizes.
    """

    same_pixels = False

    def __init__(self, base: Detector, *, size: tuple[int, int]) -> None:
        super().__init__(base.model)
        if min(size) < 1:
            raise InputError(f"expected a size of at least 1 x 1, got {size}")
        self.base = base
        self.size = size

    @classmethod
    def example(cls, model: Model) -> "LowResolution":
        """For the contract checks."""
        return cls(MSP(model), size=(12, 12))

    def fit_images(self, batches: Batches) -> None:
        self.base.fit(_Resized(batches, self._resized))

    def score_images(self, x: Images) -> Scores:
        return self.base.score_images(self._resized(x))

    def seen(self, x: Images) -> Float[Tensor, "b c _ _"]:
        return self.base.seen(self._resized(x))

    def cost(self) -> tuple[int, int]:
        return self.base.cost()

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        return tuple(lambda x, s=s: s(self._resized(x)) for s in self.base.surrogates())

    def _resized(self, x: Images) -> Float[Tensor, "b c _ _"]:
        if x.shape[-2:] == self.size:
            return x
        return interpolate(x, self.size, mode="bilinear", align_corners=False, antialias=False)


@dataclass(frozen=True)
class _Resized:
    """Resized batches that can be iterated as often as the original ones."""

    batches: Batches
    resize: Callable[[Images], Tensor]

    def __iter__(self) -> Iterator[tuple[Images, Labels]]:
        return ((self.resize(x), y) for x, y in self.batches)
