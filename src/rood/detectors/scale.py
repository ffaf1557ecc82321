"""Energy after scaling the features by how peaked they are."""

import torch

from rood.detectors.ash import LARGEST_EXPONENT, largest, scaling
from rood.detectors.base import OutputBox, OutputDetector, ScoreFunction
from rood.detectors.energy import Energy
from rood.detectors.react import energy_from
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.box import Box
from rood.shapes import Scores


class Scale(OutputDetector):
    r"""s(x) = -lse(W f e^r + b), r = sum(f) / sum of the features that a percentile keeps.

    Xu et al., *Scaling for Training Time and Post-hoc Out-of-distribution Detection Enhancement*,
    ICLR 2024, arXiv:2310.00227. Nothing is pruned; the gradient treats the set of counted
    features as a constant.
    """

    gradient = "almost_everywhere"
    bounded = ("features",)

    def __init__(self, model: Model, *, percentile: float = 85.0) -> None:
        super().__init__(model)
        if not 0 <= percentile < 100:
            raise InputError(f"expected a percentile in [0, 100), got {percentile}")
        self.percentile = percentile

    def score_outputs(self, out: Outputs) -> Scores:
        f = out.features
        scaled = f * scaling(f, f * largest(f, self.percentile))
        return -self.model.head(scaled).logsumexp(dim=1)

    def bounds_from(self, out: OutputBox) -> Box:
        """Both sums grow with every feature, so ends give ends of them and of their ratio.

        Where the smaller sum may be 0, nothing is known of the ratio but its clamp.
        """
        whole, kept = (
            Box(*(v.sum(dim=1, keepdim=True) for v in parts))
            for parts in (
                out.features,
                Box(*(v * largest(v, self.percentile) for v in out.features)),
            )
        )
        ratio = whole.times(Box(1 / kept.high, 1 / kept.low))
        known = kept.low > 1e-6
        low = ratio.low.where(known, torch.full_like(ratio.low, -torch.inf))
        high = ratio.high.where(known, torch.full_like(ratio.high, torch.inf))
        factor = Box(*(v.clamp(max=LARGEST_EXPONENT).exp() for v in (low, high)))
        return energy_from(out.features.times(factor), self.model.head)

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        return (Energy(self.model).score_images,)
