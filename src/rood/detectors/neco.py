"""Share of the features that lies in the principal subspace."""

import torch
from jaxtyping import Float
from torch import Tensor

from rood.detectors.base import OutputDetector
from rood.detectors.vim import check_dimension
from rood.models.model import Model, Outputs
from rood.numerics.streaming import Moments
from rood.shapes import Labels, Scores


class NECO(OutputDetector):
    r"""s(x) = -||P' g|| / ||g||, g = (f - mu) / sigma, P the leading principal directions of g.

    mu and sigma are the mean and standard deviation of every training feature. Ben Ammar et al.,
    *NECO: NEural Collapse Based Out-of-distribution detection*, ICLR 2024, arXiv:2310.06823.
    `dimension` is the number of directions, by default that of classes; `times_logit` multiplies by
    the largest logit, as the authors do for transformers but not for ResNets. Sign: negated.
    """

    gradient = "almost_everywhere"

    mean_: Float[Tensor, " d"]
    scale_: Float[Tensor, " d"]
    principal_: Float[Tensor, "d r"]

    def __init__(
        self, model: Model, *, dimension: int | None = None, times_logit: bool = False
    ) -> None:
        super().__init__(model)
        check_dimension(dimension, model)
        self.dimension = dimension
        self.times_logit = times_logit

    def start(self) -> None:
        self._moments = Moments(1)

    def see(self, out: Outputs, labels: Labels) -> None:
        self._moments.see(out.features, labels * 0)

    def finish(self) -> None:
        n, self.mean_, scatter = self._moments.total()
        del self._moments
        deviation = (scatter.diagonal() / n).sqrt()
        constant = deviation <= 1e-10 * deviation.amax()  # a feature that never varies stays as is
        self.scale_ = torch.where(constant, torch.ones_like(deviation), deviation)
        correlation = scatter / n / self.scale_ / self.scale_[:, None]
        _, basis = torch.linalg.eigh(correlation)  # eigenvalues ascend
        d = len(self.mean_)
        kept = self.dimension or min(self.model.classes, max(1, d // 2))
        self.principal_ = basis[:, d - kept :]

    def score_outputs(self, out: Outputs) -> Scores:
        g = (out.features.double() - self.mean_.double()) / self.scale_.double()
        length = g.norm(dim=1).clamp_min(torch.finfo(g.dtype).tiny)
        share = (g @ self.principal_.double()).norm(dim=1) / length
        return -share * out.logits.double().amax(dim=1) if self.times_logit else -share
