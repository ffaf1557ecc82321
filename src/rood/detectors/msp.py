"""Maximum softmax probability."""

from jaxtyping import Float
from torch import Tensor

from rood.detectors._gaps import gap_rows, gaps
from rood.detectors.base import OutputBox, OutputDetector
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.box import Box
from rood.numerics.softmax import margin, margin_within
from rood.shapes import Scores


class MSP(OutputDetector):
    r"""s(x) = lse_{j != y}(z_j) - z_y, with z the logits and y = argmax z.

    Hendrycks & Gimpel, *A Baseline for Detecting Misclassified and Out-of-Distribution Examples*,
    ICLR 2017, arXiv:1610.02136. The paper scores max p = 1 / (1 + e^s): the same ranking, but the
    probability saturates at 1, with ties and no gradient. Sign: the paper's confidence, negated.
    With a temperature T the margin of z / T, in units of a logit (`softmax.margin`).
    """

    bounded = ("logits", "forms")

    def __init__(self, model: Model, *, temperature: float = 1.0) -> None:
        super().__init__(model)
        if not temperature > 0:
            raise InputError(f"expected a temperature above 0, got {temperature}")
        self.temperature = temperature

    def score_outputs(self, out: Outputs) -> Scores:
        return margin(out.logits, self.temperature)

    def forms(self) -> Float[Tensor, "m d"] | None:
        return gap_rows(self.model.head)

    def bounds_from(self, out: OutputBox) -> Box:
        return margin_within(gaps(out, self.model.head), self.temperature)
