"""Energy after scaling the features by how peaked they are."""

from rood.detectors.ash import largest, scaling
from rood.detectors.base import OutputDetector, ScoreFunction
from rood.detectors.energy import Energy
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.shapes import Scores


class Scale(OutputDetector):
    r"""s(x) = -lse(W f e^r + b), r = sum(f) / sum of the features that a percentile keeps.

    Xu et al., *Scaling for Training Time and Post-hoc Out-of-distribution Detection Enhancement*,
    ICLR 2024, arXiv:2310.00227. Nothing is pruned; the gradient treats the set of counted
    features as a constant.
    """

    gradient = "almost_everywhere"

    def __init__(self, model: Model, *, percentile: float = 85.0) -> None:
        super().__init__(model)
        if not 0 <= percentile < 100:
            raise InputError(f"expected a percentile in [0, 100), got {percentile}")
        self.percentile = percentile

    def score_outputs(self, out: Outputs) -> Scores:
        f = out.features
        scaled = f * scaling(f, f * largest(f, self.percentile))
        return -self.model.head(scaled).logsumexp(dim=1)

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        return (Energy(self.model).score_images,)
