"""Size of the gradient that would pull the softmax to uniform."""

from rood.detectors.base import OutputDetector
from rood.models.model import Outputs
from rood.shapes import Scores


class GradNorm(OutputDetector):
    r"""s(x) = -||f||_1 sum_j |k p_j - 1|, minus the L1 norm of the head's gradient.

    The gradient is of the cross-entropy to the all-ones target with respect to W, in closed form.
    Huang et al., *On the Importance of Gradients for Detecting Distributional Shifts in the Wild*,
    NeurIPS 2021, arXiv:2110.00218. The paper divides by k: the same ranking.
    """

    gradient = "almost_everywhere"

    def score_outputs(self, out: Outputs) -> Scores:
        k = out.logits.shape[1]
        pull = (k * out.logits.softmax(dim=1) - 1).abs().sum(dim=1)
        return -out.features.abs().sum(dim=1) * pull
