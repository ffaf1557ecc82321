"""Agreement with the mean feature of the predicted class."""

import torch
from jaxtyping import Float
from torch import Tensor

from rood.detectors.base import OutputDetector
from rood.models.model import Outputs
from rood.numerics.streaming import Moments
from rood.shapes import Labels, Scores


class SHE(OutputDetector):
    r"""s(x) = -<f, mu_y>, y the predicted class, mu_k the mean feature of class k.

    mu_k is over training images of class k that are classified correctly; over all of the class
    where none is. Zhang et al., *Out-of-Distribution Detection based on In-Distribution Data
    Patterns Memorization with Modern Hopfield Energy*, ICLR 2023, openreview:KkazG4lgKL.
    """

    gradient = "almost_everywhere"
    needs_labels = True

    patterns_: Float[Tensor, "k d"]

    def start(self) -> None:
        self._right = Moments(self.model.classes, means_only=True)
        self._all = Moments(self.model.classes, means_only=True)

    def see(self, out: Outputs, labels: Labels) -> None:
        labels = labels.to(out.logits.device)
        right = out.logits.argmax(dim=1) == labels
        self._all.see(out.features, labels)
        self._right.see(out.features[right], labels[right])

    def finish(self) -> None:
        self._all.require_every_class()
        any_right = (self._right.count > 0)[:, None]
        self.patterns_ = torch.where(any_right, self._right.mean, self._all.mean)
        del self._right, self._all

    def score_outputs(self, out: Outputs) -> Scores:
        pattern = self.patterns_[out.logits.argmax(dim=1)].to(out.features.dtype)
        return -(out.features * pattern).sum(dim=1)
