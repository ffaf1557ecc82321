"""Virtual-logit matching."""

import torch
from jaxtyping import Float
from torch import Tensor

from rood.detectors.base import OutputBox, OutputDetector
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.box import Box
from rood.numerics.softmax import lse_within
from rood.numerics.streaming import Moments, Sample
from rood.shapes import Labels, Scores


class ViM(OutputDetector):
    r"""s(x) = alpha ||R' (f - o)||_2 - lse(z).

    o = -W^+ b moves the head's bias into the origin; R spans all but the `dimension` directions in
    which training features extend most from o; alpha = mean max z / mean ||R' (f - o)||. Wang et
    al., *ViM: Out-Of-Distribution with Virtual-logit Matching*, CVPR 2022, arXiv:2203.10807. The
    two means are over at most `sample` training images: memory does not grow with their number.
    """

    bounded = ("logits", "forms")

    origin_: Float[Tensor, " d"]
    residual_: Float[Tensor, "d r"]
    alpha_: Float[Tensor, ""]

    def __init__(self, model: Model, *, dimension: int | None = None, sample: int = 10_000) -> None:
        super().__init__(model)
        check_dimension(dimension, model)
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
        moments, rows = self._moments, self._rows.rows().double()
        del self._moments, self._rows
        o, residual = beside_principal(moments, self.model, self.dimension)
        f, top = rows[:, :-1], rows[:, -1]
        self.origin_, self.residual_ = o, residual
        self.alpha_ = top.mean() / ((f - o) @ residual).norm(dim=1).mean()

    def score_outputs(self, out: Outputs) -> Scores:
        offset = (out.features.double() - self.origin_.double()) @ self.residual_.double()
        return self.alpha_ * offset.norm(dim=1) - out.logits.double().logsumexp(dim=1)

    def forms(self) -> Float[Tensor, "m d"]:
        return self.residual_.double().T

    def bounds_from(self, out: OutputBox) -> Box:
        assert out.forms is not None
        squares = out.forms.moved(-self.origin_.double() @ self.residual_.double()).squared()
        lengths = Box(*(v.sum(dim=1).sqrt() for v in squares))
        alpha = self.alpha_.double().expand_as(lengths.low)
        virtual, others = lengths.times(Box(alpha, alpha)), lse_within(out.logits)
        return Box(virtual.low - others.high, virtual.high - others.low)


def beside_principal(
    moments: Moments, model: Model, dimension: int | None
) -> tuple[Float[Tensor, " d"], Float[Tensor, "d r"]]:
    """The origin o = -W^+ b, and the directions in which training features extend least from it.

    All but `dimension`; by default as in the paper's code: all but 1000 of 2048 features and more,
    512 of 768 and more, else half.
    """
    weight, bias = model.head.weight.double(), model.head.bias
    n, mean, scatter = moments.total()
    o = torch.zeros_like(mean) if bias is None else -torch.linalg.pinv(weight) @ bias.double()
    second = scatter / n + torch.outer(mean - o, mean - o)  # about o, not about the mean
    _, basis = torch.linalg.eigh(second)  # eigenvalues ascend
    d = len(o)
    principal = dimension or (1000 if d >= 2048 else 512 if d >= 768 else d // 2)
    return o, basis[:, : d - principal]


def check_dimension(dimension: int | None, model: Model) -> None:
    """Refuse a number of principal directions that leaves none or takes all."""
    d = model.head.in_features
    if dimension is not None and not 0 < dimension < d:
        raise InputError(
            f"expected a dimension between 1 and {d - 1}, below the {d} features, "
            f"got {dimension}: leave it out for the default"
        )
