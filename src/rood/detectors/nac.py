"""Coverage of the states of neurons by training images."""

import torch
from jaxtyping import Float
from torch import Tensor

from rood.detectors.base import OutputDetector, ScoreFunction
from rood.detectors.msp import MSP
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.shapes import Features, Images, Labels, Scores


class NAC(OutputDetector):
    r"""s(x) = -mean_i min(h_i(t_i) / least, 1), t = sigmoid(alpha v), v = f * W' (p - 1/k).

    v is feature times gradient of KL(1/k || p), p the softmax; h_i is the histogram of t_i over the
    training images, in `bins` equal bins on [0, 1], as shares of these images. Liu et al., *Neuron
    Activation Coverage: Rethinking Out-of-distribution Detection and Generalization*, ICLR 2024,
    arXiv:2306.02879; at the features alone, of the layers that the paper combines. A histogram has
    no gradient; the surrogates are it interpolated between bins, and `MSP`. Sign: negated.
    """

    gradient = "surrogate"

    counts_: Float[Tensor, "m d"]
    images_: Float[Tensor, ""]

    def __init__(
        self, model: Model, *, alpha: float = 100.0, bins: int = 50, least: float = 0.05
    ) -> None:
        super().__init__(model)
        if not (alpha > 0 and bins >= 2 and 0 < least <= 1):
            raise InputError(
                f"expected alpha > 0, bins >= 2 and 0 < least <= 1, got {alpha}, {bins} and {least}"
            )
        self.alpha = alpha
        self.bins = bins
        self.least = least

    def start(self) -> None:
        self._images = 0
        self._counts: Tensor | None = None

    def see(self, out: Outputs, labels: Labels) -> None:
        v = self.states(out)
        self._images += len(v)
        if self._counts is None:
            self._counts = v.new_zeros(self.bins, v.shape[1])
        self._counts.scatter_add_(0, self._bin(v), torch.ones_like(v))

    def finish(self) -> None:
        assert self._counts is not None
        self.counts_ = self._counts
        self.images_ = self.counts_.new_tensor(float(self._images))
        del self._counts, self._images

    def states(self, out: Outputs) -> Features:
        """v, in float64."""
        p = out.logits.double().softmax(dim=1)
        return out.features.double() * ((p - 1 / p.shape[1]) @ self.model.head.weight.double())

    def _bin(self, v: Features) -> Tensor:
        return (self.bins * torch.sigmoid(self.alpha * v)).long().clamp_max(self.bins - 1)

    @property
    def _coverage(self) -> Tensor:
        """min(h / least, 1)."""
        return (self.counts_.double() / self.images_.double() / self.least).clamp_max(1)

    def score_outputs(self, out: Outputs) -> Scores:
        v = self.states(out)
        return -self._coverage.gather(0, self._bin(v)).mean(dim=1)

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        """The histogram interpolated between the centres of its bins; the plain softmax score."""

        def interpolated(x: Images) -> Scores:
            t = torch.sigmoid(self.alpha * self.states(self.model(x)))
            place = (self.bins * t - 0.5).clamp(0, self.bins - 1)
            low = place.detach().long().clamp_max(self.bins - 2)
            part = place - low
            h = self._coverage
            return -((1 - part) * h.gather(0, low) + part * h.gather(0, low + 1)).mean(dim=1).to(x)

        return interpolated, MSP(self.model).score_images
