"""Scaling of the features by a percentile that depends on how much a small step shifts them."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rood.detectors._gradient import score_and_gradient
from rood.detectors.ash import scaling
from rood.detectors.base import Detector, ScoreFunction
from rood.detectors.energy import Energy
from rood.detectors.scale import Scale
from rood.errors import InputError
from rood.models.model import Model
from rood.numerics.streaming import Sample
from rood.seeds import row_keys
from rood.shapes import Batches, Features, Images, Scores


class AdaSCALE(Detector):
    r"""s(x) = -lse(W f e^r + b), r = sum(f) / sum of the features that percentile p(x) keeps.

    p = low + (1 - F(Q)) (high - low), Q = sum_{K1} relu(f') + weight sum_{K2} |f' - f|, f' the
    features of x + eta sign(g) on the share `pixels` of the pixel values with the least |g|, g the
    gradient of the largest logit; K1 and K2 are the largest `k1` and `k2` per cent of f, F the
    distribution of Q over at most `sample` training images. Regmi, *AdaSCALE: Adaptive Scaling for
    OOD Detection*, 2025, arXiv:2503.08023 (AdaSCALE-A). eta is in pixel units: the paper's 0.5
    after normalisation is 0.125 at a std of 0.25. The gradient treats p and the kept features as
    constants.
    """

    gradient = "almost_everywhere"

    shifts_: Float[Tensor, " n"]  # Q of training images, ascending

    def __init__(
        self,
        model: Model,
        *,
        low: float = 75.0,
        high: float = 85.0,
        k1: float = 5.0,
        k2: float = 1.0,
        weight: float = 10.0,
        pixels: float = 0.05,
        eta: float = 0.125,
        sample: int = 5_000,
    ) -> None:
        super().__init__(model)
        if not (0 <= low <= high < 100 and 0 < k1 <= 100 and 0 < k2 <= 100 and 0 < pixels <= 1):
            raise InputError(
                "expected percentiles 0 <= low <= high < 100, k1 and k2 in (0, 100] and pixels in "
                f"(0, 1], got {low}, {high}, {k1}, {k2} and {pixels}"
            )
        self.low = low
        self.high = high
        self.k1 = k1
        self.k2 = k2
        self.weight = weight
        self.pixels = pixels
        self.eta = eta
        self.sample = sample

    def fit_images(self, batches: Batches) -> None:
        rows = Sample(self.sample)
        for x, _ in batches:
            shift = self._shift(x, self.model(x).features)
            rows.see(shift[:, None], row_keys(x))
        self.shifts_ = rows.rows().flatten().sort().values

    @torch.no_grad()
    def _shift(self, x: Images, f: Features) -> Scores:
        """Q."""
        top = lambda at: self.model(at).logits.amax(dim=1)
        _, gradient = score_and_gradient(top, x)
        flat = gradient.flatten(1)
        count = max(1, int(flat.shape[1] * self.pixels))
        least = flat.abs().topk(count, dim=1, largest=False).indices
        step = torch.zeros_like(flat).scatter(1, least, flat.gather(1, least).sign())
        moved = self.model(x + self.eta * step.view_as(x)).features
        largest = f.sort(dim=1, descending=True, stable=True).indices
        first, second = (largest[:, : _share(f, k)] for k in (self.k1, self.k2))
        shifted = (f - moved).abs().gather(1, second).sum(dim=1)
        return moved.relu().gather(1, first).sum(dim=1) + self.weight * shifted

    @torch.no_grad()
    def _kept(self, x: Images, f: Features) -> Int[Tensor, "b 1"]:
        """How many features p keeps."""
        q = self._shift(x, f)
        below = torch.searchsorted(self.shifts_.to(q), q, right=True) / len(self.shifts_)
        p = self.low + (1 - below) * (self.high - self.low)
        d = f.shape[1]
        return (d - (d * p / 100).round().long()).clamp_min(1)[:, None]

    def score_images(self, x: Images) -> Scores:
        f = self.model(x).features
        places = f.detach().relu().sort(dim=1, descending=True, stable=True).indices
        rank = torch.arange(f.shape[1], device=f.device).expand_as(f)
        kept = torch.zeros_like(f).scatter(1, places, (rank < self._kept(x, f)).to(f))
        scaled = f * scaling(f.relu(), f.relu() * kept)
        return -self.model.head(scaled).logsumexp(dim=1)

    def cost(self) -> tuple[int, int]:
        return 3, 1

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        """The same with a fixed percentile, and the plain energy."""
        fixed = Scale(self.model, percentile=(self.low + self.high) / 2)
        return fixed.score_images, Energy(self.model).score_images


def _share(f: Features, percent: float) -> int:
    return max(1, int(f.shape[1] * percent / 100))
