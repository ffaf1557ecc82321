"""Energy after zeroing small features and clipping large ones."""

import torch
from jaxtyping import Float
from torch import Tensor

from rood.detectors.base import OutputDetector, ScoreFunction
from rood.detectors.energy import Energy
from rood.detectors.react import percentile
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.streaming import Sample
from rood.shapes import Features, Images, Labels, Scores


class VRA(OutputDetector):
    r"""s(x) = -lse(W g(f) + b), g(f) = 0 below a, f from a to c, c above.

    a and c are percentiles of all single training features, over at most `sample` images. Xu et
    al., *VRA: Variational Rectified Activation for Out-of-distribution Detection*, NeurIPS 2023,
    arXiv:2302.11933. Features outside [a, c] have no gradient, which masks the score; the
    surrogates are straight-through. OpenOOD raises small features to a, where the paper zeroes
    them.
    """

    gradient = "almost_everywhere"

    low_: Float[Tensor, ""]
    high_: Float[Tensor, ""]

    def __init__(
        self, model: Model, *, low: float = 60.0, high: float = 95.0, sample: int = 10_000
    ) -> None:
        super().__init__(model)
        if not 0 <= low < high <= 100:
            raise InputError(f"expected percentiles 0 <= low < high <= 100, got {low} and {high}")
        self.low = low
        self.high = high
        self.sample = sample

    def start(self) -> None:
        self._rows = Sample(self.sample)

    def see(self, out: Outputs, labels: Labels) -> None:
        self._rows.see(out.features, out.keys)

    def finish(self) -> None:
        values = self._rows.rows().flatten()
        del self._rows
        low, high = percentile(values, self.low), percentile(values, self.high)
        if high <= low:
            raise InputError(
                f"expected percentiles between which features vary, got {self.low:g} and "
                f"{self.high:g}, both {float(high):g}: raise `high`"
            )
        self.low_, self.high_ = low, high

    def rectified(self, f: Features) -> Features:
        """g(f)."""
        low, high = self.low_.to(f.dtype), self.high_.to(f.dtype)
        return torch.where(f < low, torch.zeros_like(f), torch.minimum(f, high))

    def score_outputs(self, out: Outputs) -> Scores:
        return -self.model.head(self.rectified(out.features)).logsumexp(dim=1)

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        """The rectification with a straight-through gradient, and the plain energy."""

        def straight(x: Images) -> Scores:
            f = self.model(x).features
            through = self.rectified(f).detach() + (f - f.detach())
            return -self.model.head(through).logsumexp(dim=1)

        return straight, Energy(self.model).score_images
