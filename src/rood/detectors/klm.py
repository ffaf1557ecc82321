"""Divergence from the typical softmax of each class."""

import torch
from jaxtyping import Float
from torch import Tensor

from rood.detectors.base import OutputDetector, ScoreFunction
from rood.detectors.msp import MSP
from rood.models.model import Outputs
from rood.shapes import Labels, Scores

FLOOR = 1e-12  # of a probability


class KLMatching(OutputDetector):
    r"""s(x) = min_k KL(p || d_k), with d_k the mean softmax of images *predicted* as class k.

    Hendrycks et al., *Scaling Out-of-Distribution Detection for Real-World Settings*, ICML 2022,
    arXiv:1911.11132. A class never predicted has a one-hot d_k. For a confident image the score is
    -log d_y(y), the same for all of class y, and its gradient is gone: attack the margin there.
    """

    gradient = "surrogate"

    log_typical_: Float[Tensor, "k k"]

    def start(self) -> None:
        k = self.model.classes
        self._sum = torch.zeros(k, k, dtype=torch.float64, device=self.model.mean.device)
        self._count = torch.zeros_like(self._sum[0])

    def see(self, out: Outputs, labels: Labels) -> None:
        p = out.logits.detach().double().softmax(dim=1)
        predicted = p.argmax(dim=1)
        self._sum.index_add_(0, predicted, p)
        self._count.index_add_(0, predicted, torch.ones_like(p[:, 0]))

    def finish(self) -> None:
        mean = self._sum / self._count.clamp_min(1)[:, None]
        one_hot = torch.eye(len(mean), dtype=mean.dtype, device=mean.device)
        mean = torch.where(self._count[:, None] > 0, mean, one_hot)
        del self._sum, self._count
        self.log_typical_ = mean.clamp_min(FLOOR).log()

    def score_outputs(self, out: Outputs) -> Scores:
        log_p = out.logits.double().log_softmax(dim=1)
        p = log_p.exp()
        divergence = (p * log_p).sum(dim=1, keepdim=True) - p @ self.log_typical_.double().T
        return divergence.amin(dim=1)

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        return (MSP(self.model).score_images,)
