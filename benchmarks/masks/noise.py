"""Masks that draw random numbers, declared as stochastic or not."""

import torch
from torch.nn.functional import dropout, interpolate, pad

from benchmarks.masks.base import Mask, OutputMask
from rood.detectors.base import ScoreFunction
from rood.models.model import Outputs
from rood.numerics.softmax import margin
from rood.shapes import Images, Scores


class NoiseLayer(Mask):
    """Noise on the pixels from the global generator, declared as stochastic."""

    stochastic = True

    def score_images(self, x: Images) -> Scores:
        return margin(self.model(x + 0.1 * torch.randn_like(x)).logits)


class RandomResize(Mask):
    """A random resize to 24 to 27 pixels, padded at random to 28, declared as stochastic."""

    stochastic = True

    def score_images(self, x: Images) -> Scores:
        size = int(torch.randint(24, 28, ()))
        left, top = (int(torch.randint(0, x.shape[-1] - size + 1, ())) for _ in range(2))
        return self._resized(x, size, left, top)

    def _resized(self, x: Images, size: int, left: int, top: int) -> Scores:
        small = interpolate(x, size=(size, size), mode="bilinear", align_corners=False)
        rest = x.shape[-1] - size
        return margin(self.model(pad(small, (left, rest - left, top, rest - top))).logits)

    def twins(self) -> tuple[ScoreFunction, ...]:
        places = [(28 - r, left, top) for r in (1, 2, 4) for left in (0, r) for top in (0, r)]
        return (lambda x: torch.stack([self._resized(x, *p) for p in places]).mean(dim=0),)


class RandomCrop(Mask):
    """A random shift by up to two pixels in each direction, not declared as stochastic."""

    def score_images(self, x: Images) -> Scores:
        return self._moved(x, *(int(torch.randint(-2, 3, ())) for _ in range(2)))

    def _moved(self, x: Images, down: int, right: int) -> Scores:
        return margin(self.model(x.roll((down, right), dims=(2, 3))).logits)

    def twins(self) -> tuple[ScoreFunction, ...]:
        places = [(down, right) for down in range(-2, 3) for right in range(-2, 3)]
        return (lambda x: torch.stack([self._moved(x, *p) for p in places]).mean(dim=0),)


class Dropout(OutputMask):
    """Dropout of half of the features left on, not declared as stochastic."""

    def score_outputs(self, out: Outputs) -> Scores:
        return margin(self.model.head(dropout(out.features, 0.5, training=True)))


class TinyNoise(OutputMask):
    """Undeclared noise on the score, all of it times 1e-20."""

    def score_outputs(self, out: Outputs) -> Scores:
        s = margin(out.logits)
        return 1e-20 * (s + 4 * torch.randn_like(s))


class RandomSubset(OutputMask):
    """The margin of a random half of the features, rounded: declared noise on a flat score."""

    stochastic = True

    def score_outputs(self, out: Outputs) -> Scores:
        kept = torch.rand_like(out.features).round()
        return margin(self.model.head(2 * kept * out.features)).round()
