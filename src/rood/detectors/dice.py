"""Energy with only the head's most contributing weights."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear

from rood.detectors.base import OutputBox, OutputDetector
from rood.detectors.react import percentile
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.box import Box
from rood.numerics.softmax import lse_within
from rood.numerics.streaming import Moments
from rood.shapes import Labels, Scores


class DICE(OutputDetector):
    r"""s(x) = -lse((W * M) f + b), M keeping the weights whose contribution is above a percentile.

    The contribution of W_kj is W_kj times the mean training feature j; the percentile is over all
    of them. Sun & Li, *DICE: Leveraging Sparsification for Out-of-Distribution Detection*,
    ECCV 2022, arXiv:2111.09805.
    """

    bounded = ("forms",)

    mask_: Float[Tensor, "k d"]

    def __init__(self, model: Model, *, percentile: float = 90.0) -> None:
        super().__init__(model)
        if not 0 <= percentile < 100:
            raise InputError(f"expected a percentile in [0, 100), got {percentile}")
        self.percentile = percentile

    def start(self) -> None:
        self._moments = Moments(1, means_only=True)

    def see(self, out: Outputs, labels: Labels) -> None:
        self._moments.see(out.features, labels * 0)

    def finish(self) -> None:
        mean = self._moments.mean[0]
        del self._moments
        contribution = self.model.head.weight.double() * mean
        bar = percentile(contribution.flatten(), self.percentile)
        self.mask_ = (contribution > bar).to(self.model.head.weight.dtype)

    def score_outputs(self, out: Outputs) -> Scores:
        head = self.model.head
        mask = self.mask_.to(head.weight.dtype)
        return -linear(out.features, head.weight * mask, head.bias).logsumexp(dim=1)

    def forms(self) -> Float[Tensor, "m d"]:
        return self.model.head.weight.double() * self.mask_.double()

    def bounds_from(self, out: OutputBox) -> Box:
        assert out.forms is not None
        bias = self.model.head.bias
        return lse_within(out.forms.moved(0.0 if bias is None else bias.double())).negated()
