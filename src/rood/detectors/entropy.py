"""Entropy of the softmax."""

from jaxtyping import Float
from torch import Tensor

from rood.detectors._gaps import gap_rows, gaps
from rood.detectors.base import OutputBox, OutputDetector, ScoreFunction
from rood.detectors.msp import MSP
from rood.models.model import Outputs
from rood.numerics.box import Box
from rood.numerics.softmax import entropy_log_odds, entropy_log_odds_within
from rood.shapes import Scores


class Entropy(OutputDetector):
    r"""s(x) = log H(p) - log(log k - H(p)), H(p) = -sum_j p_j log p_j, with p the softmax.

    The score of Chen et al., *Leveraging Perturbation Robustness to Enhance Out-of-Distribution
    Detection*, CVPR 2025, arXiv:2503.18784, as log-odds of H / log k for k classes: H and its
    gradient vanish for a confident image and saturate near the uniform softmax. Same ranking.
    """

    bounded = ("logits", "forms")

    def score_outputs(self, out: Outputs) -> Scores:
        return entropy_log_odds(out.logits)

    def forms(self) -> Float[Tensor, "m d"] | None:
        return gap_rows(self.model.head)

    def bounds_from(self, out: OutputBox) -> Box:
        return entropy_log_odds_within(gaps(out, self.model.head))

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        return (MSP(self.model).score_images,)
