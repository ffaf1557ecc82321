"""The outlier-exposure score: how close the softmax is to uniform."""

from jaxtyping import Float
from torch import Tensor

from rood.detectors.base import OutputBox, OutputDetector
from rood.models.model import Outputs
from rood.numerics.box import Box
from rood.numerics.softmax import uniform_cross_entropy
from rood.shapes import Scores


class UniformCrossEntropy(OutputDetector):
    r"""s(x) = mean_j z_j - lse(z) = (1/k) sum_j log p_j, at most -log k, where p is uniform.

    Hendrycks et al., *Deep Anomaly Detection with Outlier Exposure*, ICLR 2019, arXiv:1812.04606,
    as its code has it. The text writes the cross-entropy from the uniform distribution itself,
    lse(z) - mean z, which is the negative and ranks in-distribution images higher.
    """

    bounded = ("forms",)

    def score_outputs(self, out: Outputs) -> Scores:
        return -uniform_cross_entropy(out.logits)

    def forms(self) -> Float[Tensor, "m d"] | None:
        """W_j - mean W: the score is -lse(z_j - mean z)."""
        weight = self.model.head.weight.double()
        return weight - weight.mean(dim=0)

    def bounds_from(self, out: OutputBox) -> Box:
        assert out.forms is not None
        bias = self.model.head.bias
        shift = 0.0 if bias is None else bias.double() - bias.double().mean()
        return Box(*(v.logsumexp(dim=1) for v in out.forms.moved(shift))).negated()
