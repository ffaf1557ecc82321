"""Mahalanobis distance to the nearest class, less the distance to the whole training set."""

import torch
from jaxtyping import Float
from torch import Tensor

from rood.detectors.base import OutputBox, OutputDetector, ScoreFunction
from rood.detectors.mahalanobis import Mahalanobis
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


class RelativeMahalanobis(OutputDetector):
    r"""s(x) = min_k MD_k(x) - MD_0(x), with MD_k as in `Mahalanobis`.

    MD_0 is the distance under the mean and covariance of all features, labels ignored. Ren et al.,
    *A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection*, 2021, arXiv:2106.09022.
    Unbounded below along directions in which classes vary little.
    """

    gradient = "almost_everywhere"
    needs_labels = True
    bounded = ("forms",)

    mean_: Float[Tensor, "1 d"]  # whitened: A_0 mu_0
    whitener_: Float[Tensor, "d d"]  # A_0, with A_0'A_0 = Sigma_0^-1
    ridge_: Float[Tensor, ""]

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.by_class = Mahalanobis(model)

    def start(self) -> None:
        self._moments = Moments(1)

    def see(self, out: Outputs, labels: Labels) -> None:
        self._moments.see(out.features, labels * 0)

    def finish(self) -> None:
        n, mean, scatter = self._moments.total()
        del self._moments
        self.whitener_, self.ridge_ = whitener(scatter / n)
        self.mean_ = (self.whitener_ @ mean)[None]

    def relative_distances(self, f: Features) -> Float[Tensor, "b k"]:
        """MD_k - MD_0 for every class, in float64."""
        white = f.double() @ self.whitener_.double().T
        return self.by_class.distances(f) - squared_distances(white, self.mean_.double())

    def score_outputs(self, out: Outputs) -> Scores:
        return self.relative_distances(out.features).amin(dim=1)

    def forms(self) -> Float[Tensor, "m d"]:
        """The rows of both whitening matrices."""
        return torch.cat([self.by_class.forms(), self.whitener_.double()])

    def bounds_from(self, out: OutputBox) -> Box:
        assert out.forms is not None
        d = out.forms.low.shape[1] // 2
        near = self.by_class.bounds_from(out._replace(forms=Box(*(v[:, :d] for v in out.forms))))
        whole = Box(*(v[:, d:] for v in out.forms))
        far = distances_within(whole, self.mean_.double())
        return Box(near.low - far.high[:, 0], near.high - far.low[:, 0])

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        soft = lambda x: soft_minimum(self.relative_distances(self.model(x).features)).to(x.dtype)
        return (soft,)
