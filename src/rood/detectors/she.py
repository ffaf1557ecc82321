"""Agreement with the mean feature of the predicted class."""

import torch
from jaxtyping import Float
from torch import Tensor

from rood.detectors._gaps import gap_rows, gaps
from rood.detectors.base import OutputBox, OutputDetector
from rood.models.model import Outputs
from rood.numerics.box import Box
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
    bounded = ("logits", "forms")

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

    def forms(self) -> Float[Tensor, "m d"]:
        """The patterns, then the gaps of the logits."""
        rows, patterns = gap_rows(self.model.head), self.patterns_.double()
        return patterns if rows is None else torch.cat([patterns, rows])

    def bounds_from(self, out: OutputBox) -> Box:
        """Over the classes that may be the predicted one: no other is surely more probable."""
        assert out.forms is not None
        k = len(self.patterns_)
        agreement = Box(*(v[:, :k] for v in out.forms))
        possible = (gaps(out, self.model.head).low <= 1e-9).all(dim=2)
        low = (-agreement.high).masked_fill(~possible, torch.inf).amin(dim=1)
        return Box(low, (-agreement.low).masked_fill(~possible, -torch.inf).amax(dim=1))
