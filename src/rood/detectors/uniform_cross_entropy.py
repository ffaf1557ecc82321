"""The outlier-exposure score: how close the softmax is to uniform."""

from rood.detectors.base import OutputDetector
from rood.models.model import Outputs
from rood.numerics.softmax import uniform_cross_entropy
from rood.shapes import Scores


class UniformCrossEntropy(OutputDetector):
    r"""s(x) = mean_j z_j - lse(z) = (1/k) sum_j log p_j, at most -log k, where p is uniform.

    Hendrycks et al., *Deep Anomaly Detection with Outlier Exposure*, ICLR 2019, arXiv:1812.04606,
    as its code has it. The text writes the cross-entropy from the uniform distribution itself,
    lse(z) - mean z, which is the negative and ranks in-distribution images higher.
    """

    def score_outputs(self, out: Outputs) -> Scores:
        return -uniform_cross_entropy(out.logits)
