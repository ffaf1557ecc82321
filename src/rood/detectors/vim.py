"""Virtual-logit matching."""

import torch
from jaxtyping import Float
from torch import Tensor

from rood.detectors.base import OutputDetector
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.streaming import Moments, Sample
from rood.shapes import Labels, Scores


class ViM(OutputDetector):
    r"""s(x) = alpha ||R' (f - o)||_2 - lse(z).

    o = -W^+ b moves the head's bias into the origin; R spans all but the `dimension` directions in
    which training features extend most from o; alpha = mean max z / mean ||R' (f - o)||. Wang et
    al., *ViM: Out-Of-Distribution with Virtual-logit Matching*, CVPR 2022, arXiv:2203.10807. The
    two means are over at most `sample` training images: memory does not grow with their number.
    """

    origin_: Float[Tensor, " d"]
    residual_: Float[Tensor, "d r"]
    alpha_: Float[Tensor, ""]

    def __init__(self, model: Model, *, dimension: int | None = None, sample: int = 10_000) -> None:
        super().__init__(model)
        d = model.head.in_features
        if dimension is not None and not 0 < dimension < d:
            raise InputError(
                f"expected a dimension between 1 and {d - 1}, below the {d} features, "
                f"got {dimension}: leave it out for the default"
            )
        self.dimension = dimension
        self.sample = sample

    def start(self) -> None:
        self._moments = Moments(1)
        self._rows = Sample(self.sample)

    def see(self, out: Outputs, labels: Labels) -> None:
        self._moments.see(out.features, labels * 0)
        rows = torch.cat([out.features, out.logits.amax(dim=1, keepdim=True)], dim=1)
        self._rows.see(rows, out.keys)

    def finish(self) -> None:
        weight, bias = self.model.head.weight.double(), self.model.head.bias
        n, mean, scatter = self._moments.total()
        rows = self._rows.rows().double()
        del self._moments, self._rows
        o = torch.zeros_like(mean) if bias is None else -torch.linalg.pinv(weight) @ bias.double()
        second = scatter / n + torch.outer(mean - o, mean - o)  # about o, not about the mean
        _, basis = torch.linalg.eigh(second)  # eigenvalues ascend
        residual = basis[:, : len(o) - self._principal(len(o))]
        f, top = rows[:, :-1], rows[:, -1]
        self.origin_, self.residual_ = o, residual
        self.alpha_ = top.mean() / ((f - o) @ residual).norm(dim=1).mean()

    def score_outputs(self, out: Outputs) -> Scores:
        offset = (out.features.double() - self.origin_.double()) @ self.residual_.double()
        return self.alpha_ * offset.norm(dim=1) - out.logits.double().logsumexp(dim=1)

    def _principal(self, d: int) -> int:
        """The paper's code: 1000 of 2048 features and more, 512 of 768 and more, else half."""
        return self.dimension or (1000 if d >= 2048 else 512 if d >= 768 else d // 2)
