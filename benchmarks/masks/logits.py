"""Masks that are formulas of the logits: flat, cut, clipped, folded or relative scores."""

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.masks.base import OutputMask
from rood.models.model import Outputs
from rood.numerics.softmax import margin
from rood.shapes import Labels, Scores


class Saturated(OutputMask):
    """The probability of sharp logits, which is exactly 1 in float32 for most images."""

    def score_outputs(self, out: Outputs) -> Scores:
        return 1 - (50 * out.logits).softmax(dim=1).amax(dim=1)


class SignCut(OutputMask):
    """The detached size of the score times its sign: the value is right, the gradient is 0."""

    def score_outputs(self, out: Outputs) -> Scores:
        s = margin(out.logits)
        return s.abs().detach() * s.sign()


class TinyScale(OutputMask):
    """`sign_cut` times 1e-20, so that absolute tolerances see nothing."""

    def score_outputs(self, out: Outputs) -> Scores:
        s = 1e-20 * margin(out.logits)
        return s.abs().detach() * s.sign()


class InfiniteFrame(OutputMask):
    """`sign_cut` with an infinite score for very uncertain images, so that means are infinite."""

    def score_outputs(self, out: Outputs) -> Scores:
        s = margin(out.logits)
        return torch.where(s > -0.5, torch.inf, s.abs().detach() * s.sign())


class Quantised(OutputMask):
    """The score rounded to half a logit: flat nearly everywhere."""

    def score_outputs(self, out: Outputs) -> Scores:
        return (2 * margin(out.logits)).round() / 2


class RoundedLogits(OutputMask):
    """The margin of logits that are rounded to whole numbers: no gradient reaches the network."""

    def score_outputs(self, out: Outputs) -> Scores:
        return margin(out.logits.round())


class Clipped(OutputMask):
    """The score clipped to an interval that most images are outside of: no gradient there."""

    def score_outputs(self, out: Outputs) -> Scores:
        return margin(out.logits).clamp(-6, -3)


class Boxed(OutputMask):
    """The distance to the interval of nine of ten training scores: 0 for most ID images."""

    low_: Float[Tensor, ""]
    high_: Float[Tensor, ""]

    def start(self) -> None:
        self._seen: list[Tensor] = []

    def see(self, out: Outputs, labels: Labels) -> None:
        self._seen.append(margin(out.logits).detach())

    def finish(self) -> None:
        self.low_, self.high_ = torch.cat(self._seen).quantile(torch.tensor([0.05, 0.95])).unbind()

    def score_outputs(self, out: Outputs) -> Scores:
        s = margin(out.logits)
        return (s - self.high_).relu() - (self.low_ - s).relu()


class Waves(OutputMask):
    """The score plus a wave along itself: a local optimum every logit traps gradient ascent."""

    def score_outputs(self, out: Outputs) -> Scores:
        s = margin(out.logits)
        return s + (6 * s).sin()


class ScoreRipple(OutputMask):
    """The score plus a ripple of 4e-6: the sign of the gradient changes every few ulps."""

    def score_outputs(self, out: Outputs) -> Scores:
        s = margin(out.logits)
        return s + 4e-6 * (2e6 * s).sin()


class BatchNormalised(OutputMask):
    """The score standardised over its batch: the sum over a batch has no gradient."""

    def score_outputs(self, out: Outputs) -> Scores:
        s = margin(out.logits)
        return (s - s.mean()) / s.std()
