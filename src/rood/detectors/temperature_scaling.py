"""Maximum softmax probability at the temperature that calibrates the network."""

import math

import torch
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn.functional import cross_entropy

from rood.detectors._gaps import gap_rows, gaps
from rood.detectors.base import OutputBox, OutputDetector
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.box import Box
from rood.numerics.softmax import margin, margin_within
from rood.numerics.streaming import Sample
from rood.shapes import Labels, Scores


class TemperatureScaling(OutputDetector):
    r"""s(x) = m(z / T), m as in `MSP`, with T = argmin of the mean cross-entropy of softmax(z / T).

    Guo et al., *On Calibration of Modern Neural Networks*, ICML 2017, arXiv:1706.04599. T belongs
    to images the network was not trained on; it is sought over log T (the loss is convex in 1/T),
    on at most `sample` images.
    """

    needs_labels = True
    bounded = ("logits", "forms")

    temperature_: Float[Tensor, ""]

    def __init__(self, model: Model, *, sample: int = 10_000) -> None:
        super().__init__(model)
        self.sample = sample

    def start(self) -> None:
        self._rows = Sample(self.sample)

    def see(self, out: Outputs, labels: Labels) -> None:
        k = out.logits.shape[1]
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < k:
            raise InputError(f"expected labels 0 to {k - 1}, got {labels.unique().tolist()[:5]}")
        rows = torch.cat([out.logits, labels.to(out.logits)[:, None]], dim=1)
        self._rows.see(rows, out.keys)

    def finish(self) -> None:
        rows = self._rows.rows().double()
        del self._rows
        z, y = rows[:, :-1], rows[:, -1].long()
        loss = lambda log_t: cross_entropy(z / math.exp(log_t), y).item()
        best = minimize_scalar(loss, bounds=(-5, 7), method="bounded", options={"xatol": 1e-6})
        self.temperature_ = torch.tensor(math.exp(best.x), dtype=z.dtype, device=z.device)

    def score_outputs(self, out: Outputs) -> Scores:
        return margin(out.logits, self.temperature_.to(out.logits.dtype))

    def forms(self) -> Float[Tensor, "m d"] | None:
        return gap_rows(self.model.head)

    def bounds_from(self, out: OutputBox) -> Box:
        return margin_within(gaps(out, self.model.head), self.temperature_.double())
