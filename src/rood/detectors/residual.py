"""Length of the features outside their principal subspace."""

from jaxtyping import Float
from torch import Tensor

from rood.detectors.base import OutputDetector
from rood.detectors.vim import beside_principal, check_dimension
from rood.models.model import Model, Outputs
from rood.numerics.streaming import Moments
from rood.shapes import Labels, Scores


class Residual(OutputDetector):
    r"""s(x) = ||R' (f - o)||_2, o and R as in `ViM`: the part of `ViM` that ignores the logits.

    Wang et al., *ViM: Out-Of-Distribution with Virtual-logit Matching*, CVPR 2022,
    arXiv:2203.10807.
    """

    origin_: Float[Tensor, " d"]
    residual_: Float[Tensor, "d r"]

    def __init__(self, model: Model, *, dimension: int | None = None) -> None:
        super().__init__(model)
        check_dimension(dimension, model)
        self.dimension = dimension

    def start(self) -> None:
        self._moments = Moments(1)

    def see(self, out: Outputs, labels: Labels) -> None:
        self._moments.see(out.features, labels * 0)

    def finish(self) -> None:
        moments = self._moments
        del self._moments
        self.origin_, self.residual_ = beside_principal(moments, self.model, self.dimension)

    def score_outputs(self, out: Outputs) -> Scores:
        offset = out.features.double() - self.origin_.double()
        return (offset @ self.residual_.double()).norm(dim=1)
