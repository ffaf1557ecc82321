"""Maximum logit."""

from rood.detectors.base import OutputDetector
from rood.models.model import Outputs
from rood.shapes import Scores


class MaxLogit(OutputDetector):
    r"""s(x) = -max_j z_j, with z the logits.

    Hendrycks et al., *Scaling Out-of-Distribution Detection for Real-World Settings*, ICML 2022,
    arXiv:1911.11132. Sign: the paper's confidence, negated.
    """

    def score_outputs(self, out: Outputs) -> Scores:
        return -out.logits.amax(dim=1)
