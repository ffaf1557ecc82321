"""Distance to the nearest class mean under one shared covariance."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor

from rood.detectors.base import OutputBox, OutputDetector, ScoreFunction
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.box import Box
from rood.numerics.covariance import (
    distances_within,
    soft_minimum,
    squared_distances,
    whitener,
)
from rood.numerics.streaming import Moments
from rood.shapes import Features, Labels, Scores


class Mahalanobis(OutputDetector):
    r"""s(x) = min_k (f - mu_k)' Sigma^-1 (f - mu_k), with f the features.

    mu_k are class means, Sigma the covariance within classes. Lee et al., *A Simple Unified
    Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks*, NeurIPS 2018,
    arXiv:1807.03888; last layer only, no input preprocessing. `pooling="class_average"` weighs
    classes alike, each with its unbiased covariance, as Fort 2022 (arXiv:2201.07012) in code.
    """

    gradient = "almost_everywhere"
    needs_labels = True
    bounded = ("forms",)

    means_: Float[Tensor, "k d"]  # whitened: A mu_k
    whitener_: Float[Tensor, "d d"]  # A, with A'A = Sigma^-1
    ridge_: Float[Tensor, ""]  # what had to be added to Sigma, relative to its mean diagonal

    def __init__(
        self, model: Model, *, pooling: Literal["pooled", "class_average"] = "pooled"
    ) -> None:
        super().__init__(model)
        if pooling not in ("pooled", "class_average"):
            raise InputError(f"expected pooling 'pooled' or 'class_average', got {pooling!r}")
        self.pooling = pooling

    def start(self) -> None:
        average = self.pooling == "class_average"
        self._moments = Moments(self.model.classes, by_class=average)

    def see(self, out: Outputs, labels: Labels) -> None:
        self._moments.see(out.features, labels)

    def finish(self) -> None:
        m = self._moments
        del self._moments
        if self.pooling == "class_average":
            m.require_every_class(least=2)
            sigma = (m.scatter / (m.count - 1)[:, None, None]).mean(dim=0)
        else:
            m.require_every_class()
            sigma = m.within / m.count.sum()
        self.whitener_, self.ridge_ = whitener(sigma)
        self.means_ = m.mean @ self.whitener_.T

    def distances(self, f: Features) -> Float[Tensor, "b k"]:
        """Squared Mahalanobis distance to every class mean, in float64."""
        white = f.double() @ self.whitener_.double().T  # (b, d)
        return squared_distances(white, self.means_.double())

    def score_outputs(self, out: Outputs) -> Scores:
        return self.distances(out.features).amin(dim=1)

    def forms(self) -> Float[Tensor, "m d"]:
        return self.whitener_.double()

    def bounds_from(self, out: OutputBox) -> Box:
        assert out.forms is not None
        each = distances_within(out.forms, self.means_.double())
        return Box(each.low.amin(dim=1), each.high.amin(dim=1))

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        soft = lambda x: soft_minimum(self.distances(self.model(x).features)).to(x.dtype)
        return (soft,)
