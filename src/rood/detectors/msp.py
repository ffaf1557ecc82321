"""Maximum softmax probability."""

from rood.detectors.base import OutputDetector
from rood.models.model import Outputs
from rood.shapes import Scores
from rood.softmax import margin


class MSP(OutputDetector):
    r"""s(x) = lse_{j != y}(z_j) - z_y, with z the logits and y = argmax z.

    Hendrycks & Gimpel, *A Baseline for Detecting Misclassified and Out-of-Distribution Examples*,
    ICLR 2017, arXiv:1610.02136. The paper scores max p = 1 / (1 + e^s): the same ranking, but the
    probability ties at 1 and its gradient dies where this does not. Sign: confidence, turned.
    """

    def score_outputs(self, out: Outputs) -> Scores:
        return margin(out.logits)
