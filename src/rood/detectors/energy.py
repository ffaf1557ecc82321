"""Free energy of the logits."""

from jaxtyping import Float
from torch import Tensor

from rood.detectors._gaps import gap_rows, gaps
from rood.detectors.base import OutputBox, OutputDetector
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.box import Box
from rood.numerics.softmax import lse_within
from rood.shapes import Scores


class Energy(OutputDetector):
    r"""s(x) = -T lse(z / T), with z the logits.

    Liu et al., *Energy-based Out-of-distribution Detection*, NeurIPS 2020, arXiv:2010.03759.
    """

    bounded = ("logits", "forms")

    def __init__(self, model: Model, *, temperature: float = 1.0) -> None:
        super().__init__(model)
        if not temperature > 0:
            raise InputError(f"expected a temperature above 0, got {temperature}")
        self.temperature = temperature

    def score_outputs(self, out: Outputs) -> Scores:
        return -self.temperature * (out.logits / self.temperature).logsumexp(dim=1)

    def forms(self) -> Float[Tensor, "m d"] | None:
        return gap_rows(self.model.head)

    def bounds_from(self, out: OutputBox) -> Box:
        return lse_within(out.logits, gaps(out, self.model.head), self.temperature).negated()
