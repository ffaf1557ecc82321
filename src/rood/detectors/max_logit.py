"""Maximum logit."""

from rood.detectors.base import OutputBox, OutputDetector
from rood.models.model import Outputs
from rood.numerics.box import Box
from rood.shapes import Scores


class MaxLogit(OutputDetector):
    r"""s(x) = -max_j z_j, with z the logits.

    Hendrycks et al., *Scaling Out-of-Distribution Detection for Real-World Settings*, ICML 2022,
    arXiv:1911.11132. Sign: the paper's confidence, negated.
    """

    bounded = ("logits",)

    def score_outputs(self, out: Outputs) -> Scores:
        return -out.logits.amax(dim=1)

    def bounds_from(self, out: OutputBox) -> Box:
        return Box(*(z.amax(dim=1) for z in out.logits)).negated()
