"""The mean score of an image and of its mirror image."""

from collections.abc import Callable

from rood.detectors.base import Detector, ScoreFunction
from rood.detectors.energy import Energy
from rood.detectors.msp import MSP
from rood.models.model import Model
from rood.numerics.box import Box
from rood.registry import named
from rood.shapes import Images, Scores


class Mirrored(Detector):
    r"""s(x) = (s0(x) + s0(mirror(x))) / 2, for any detector s0; mirror swaps left and right.

    Averaging over both views is from Simonyan & Zisserman, *Very Deep Convolutional Networks for
    Large-Scale Image Recognition*, ICLR 2015, arXiv:1409.1556 (there, of the softmax). One
    perturbation has to move both scores. For networks that were trained with mirror images; s0 is
    fitted on the images as they are.
    """

    def __init__(self, base: Detector) -> None:
        super().__init__(base.model)
        self.base = base

    @classmethod
    @named("mirrored_msp")
    def msp(cls, model: Model) -> "Mirrored":
        """Of MSP."""
        return cls(MSP(model))

    @classmethod
    @named("mirrored_energy")
    def energy(cls, model: Model) -> "Mirrored":
        """Of the energy."""
        return cls(Energy(model))

    def score_images(self, x: Images) -> Scores:
        return _of_both(self.base.score_images, x)

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        return tuple(lambda x, s=s: _of_both(s, x) for s in self.base.surrogates())

    def bounds_around(self, x: Images, inner: Callable[[Detector, Images], Box]) -> Box:
        """The images near the mirror image are the mirror images of those near x."""
        here, there = inner(self.base, x), inner(self.base, x.flip(-1))
        return Box((here.low + there.low) / 2, (here.high + there.high) / 2)

    def cost(self) -> tuple[int, int]:
        forwards, backwards = self.base.cost()
        return 2 * forwards, 2 * backwards


def _of_both(score: ScoreFunction, x: Images) -> Scores:
    return (score(x) + score(x.flip(-1))) / 2
