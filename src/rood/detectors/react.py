"""Energy after clipping the features."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rood.detectors._gaps import gap_rows, gaps
from rood.detectors.base import OutputBox, OutputDetector, ScoreFunction
from rood.detectors.energy import Energy
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.box import Box
from rood.numerics.softmax import lse_within
from rood.numerics.streaming import Sample
from rood.shapes import Images, Labels, Scores


class ReAct(OutputDetector):
    r"""s(x) = -lse(W min(f, c) + b), c a percentile of all single training features.

    Sun et al., *ReAct: Out-of-distribution Detection With Rectified Activations*, NeurIPS 2021,
    arXiv:2111.12797. c is taken over at most `sample` images. A clipped feature has no gradient,
    which masks the score; the surrogates are straight-through.
    """

    gradient = "almost_everywhere"
    bounded = ("features",)

    clip_: Float[Tensor, ""]

    def __init__(self, model: Model, *, percentile: float = 90.0, sample: int = 10_000) -> None:
        super().__init__(model)
        if not 0 < percentile <= 100:
            raise InputError(f"expected a percentile in (0, 100], got {percentile}")
        self.percentile = percentile
        self.sample = sample

    def start(self) -> None:
        self._rows = Sample(self.sample)

    def see(self, out: Outputs, labels: Labels) -> None:
        self._rows.see(out.features, out.keys)

    def finish(self) -> None:
        values = self._rows.rows().flatten()
        del self._rows
        clip = percentile(values, self.percentile)
        if clip <= values.min():
            raise InputError(
                f"expected a percentile above the least feature, got {self.percentile:g}, at which "
                f"all are clipped to {float(clip):g} and all scores alike: try 90"
            )
        self.clip_ = clip

    def score_outputs(self, out: Outputs) -> Scores:
        clipped = torch.minimum(out.features, self.clip_.to(out.features.dtype))
        return -self.model.head(clipped).logsumexp(dim=1)

    def bounds_from(self, out: OutputBox) -> Box:
        clip, head = self.clip_.double(), self.model.head
        return energy_from(Box(*(v.minimum(clip) for v in out.features)), head)

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        """The clip with a straight-through gradient, and the plain energy."""

        def straight(x: Images) -> Scores:
            f = self.model(x).features
            clipped = torch.minimum(f, self.clip_.to(f.dtype)).detach() + (f - f.detach())
            return -self.model.head(clipped).logsumexp(dim=1)

        return straight, Energy(self.model).score_images


def percentile(values: Float[Tensor, " n"], p: float) -> Float[Tensor, ""]:
    """The p-th percentile, linear between neighbours, of any number of values."""
    ordered = values.double().sort().values
    place = (len(ordered) - 1) * p / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def energy_from(features: Box, head: nn.Linear) -> Box:
    """Bounds of -lse(W f + b) over a box of features: logits and their gaps in the whole box."""
    bias = None if head.bias is None else head.bias.double()
    logits = features.linear(head.weight.double(), bias)
    rows = gap_rows(head)
    forms = None if rows is None else features.linear(rows)
    return lse_within(logits, gaps(OutputBox(logits, features, forms=forms), head)).negated()
