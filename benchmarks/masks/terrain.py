"""Masks with a true gradient that leads nowhere: extra terms trap an attack close to the image."""

import math

from benchmarks.masks.base import EPS, Mask
from rood import zoo
from rood.models.model import Model
from rood.numerics.softmax import margin
from rood.shapes import Images, Scores

BETWEEN = -4.6  # a margin of the robust network between those of ID and OOD digits


class _Terrain(Mask):
    """The margin plus a penalty of the pixels, whose sign the robust demo network decides.

    The penalty lowers the score of images that look ID to the robust network, and raises that of
    others: it works against the attacker on either side.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.judge = zoo.load("digits-aloe")

    def _penalty(self, x: Images) -> Scores:
        raise NotImplementedError

    def score_images(self, x: Images) -> Scores:
        side = (margin(self.judge(x).logits).detach() - BETWEEN).sign()
        return margin(self.model(x).logits) + side * self._penalty(x)


class GridComb(_Terrain):
    """A smooth penalty between the 8-bit levels that holds every pixel at the nearest one."""

    def _penalty(self, x: Images) -> Scores:
        return 5 * (255 * math.pi * x).sin().square().flatten(1).sum(dim=1)


class Lattice(_Terrain):
    """A smooth penalty between the levels 0, 0.1, ..., 1 that holds every pixel at one of them."""

    def _penalty(self, x: Images) -> Scores:
        return 2 * (10 * math.pi * x).sin().square().flatten(1).sum(dim=1)

    def harmless(self, moved: Images, x: Images) -> Images:
        low, high = (10 * (x - EPS)).ceil(), (10 * (x + EPS)).floor()
        return (10 * moved).round().clamp(low, high) / 10
