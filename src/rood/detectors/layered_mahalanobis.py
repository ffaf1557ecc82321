"""Mahalanobis confidences of several layers, with equal weights or those of a regression."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from jaxtyping import Float
from sklearn.linear_model import LogisticRegressionCV
from torch import Tensor
from torch.nn.functional import pad

from rood.detectors._gradient import at, score_and_gradient, smooth_sign
from rood.detectors.base import Detector, OutputDetector, ScoreFunction
from rood.errors import CapabilityError, InputError
from rood.models.model import Model, Outputs
from rood.numerics.covariance import squared_distances, whitener
from rood.numerics.streaming import Moments
from rood.shapes import Batches, Images, Labels, Scores

L = TypeVar("L", bound="LayeredMahalanobis")


class LayeredMahalanobis(Detector):
    r"""s(x) = sum_l w_l M_l(x_l) + b, M_l = max_k -(phi_l - mu_lk)' Sigma_l^-1 (phi_l - mu_lk) / 2.

    phi_l is the spatial mean of layer l's map; x_l = x + eta sign(grad M_l(x)) a step of its own
    for each layer. Lee et al., *A Simple Unified Framework for Detecting Out-of-Distribution
    Samples and Adversarial Attacks*, NeurIPS 2018, arXiv:1807.03888. After fit() all weights are
    -1/L; `weigh` sets them by logistic regression (OOD = 1; s is its logit).
    """

    gradient = "almost_everywhere"
    needs_labels = True

    weights_: Float[Tensor, " l"]
    bias_: Float[Tensor, ""]

    def __init__(
        self,
        model: Model,
        *,
        layers: tuple[str, ...] | None = None,  # None: the last of every stage of the network
        eta: float = 0.0,
    ) -> None:
        super().__init__(model)
        if not eta >= 0:
            raise InputError(f"expected eta >= 0, got {eta}")
        self.layers = layers
        self.eta = eta
        self.confidences = _Confidences(model, layers=layers)

    def fit_images(self, batches: Batches) -> None:
        n = self.confidences.maps  # more than layers where one runs several times
        self.weights_ = self.model.mean.new_full((n,), -1 / n, dtype=torch.float64)
        self.bias_ = torch.zeros_like(self.weights_[0])

    def score_images(self, x: Images) -> Scores:
        return self._weighed(self.terms(x)).to(x.dtype)

    def terms(self, x: Images) -> Float[Tensor, "b l"]:
        """M_l of every layer, each after its own step where eta > 0, in float64."""

        def stepped(one: ScoreFunction) -> Images:
            _, gradient = score_and_gradient(one, x)
            return at(x.detach() + self.step() * gradient.sign(), x)

        return self._terms(x, stepped)

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        """The sign smoothed to tanh: with a large eta most of an attack's gain is in its flips."""

        def smooth(x: Images) -> Scores:
            stepped = lambda one: x + self.step() * smooth_sign(one, x)
            return self._weighed(self._terms(x, stepped)).to(x.dtype)

        return (smooth,) if self.eta > 0 else ()

    def _terms(self, x: Images, stepped: Callable[[ScoreFunction], Images]) -> Float[Tensor, "b l"]:
        self.confidences.choose_taps(x)
        every = lambda v: self.confidences.of(self.model(v, self.confidences.taps))
        if self.eta == 0:
            return every(x)
        layers = [lambda v, i=i: every(v)[:, i] for i in range(len(self.weights_))]
        return torch.stack([one(stepped(one)) for one in layers], dim=1)

    def step(self) -> Tensor | float:
        """The size of the step along the sign, in pixel units."""
        return self.eta

    def _weighed(self, terms: Float[Tensor, "b l"]) -> Float[Tensor, " b"]:
        return terms @ self.weights_.double() + self.bias_

    def weigh(
        self: L,
        inside: Iterable[Float[Tensor, "_ c h w"]],
        outside: Iterable[Float[Tensor, "_ c h w"]],
    ) -> L:
        """Set the weights by cross-validated logistic regression: ID 0, OOD 1."""
        self.check_fitted()
        with torch.no_grad():
            groups = [torch.cat([self.terms(x) for x in xs]).cpu() for xs in (inside, outside)]
        m = torch.cat(groups)
        y = torch.cat([torch.full((len(g),), i) for i, g in enumerate(groups)])
        centre, width = m.mean(dim=0), m.std(dim=0).clamp_min(1e-12)  # folded back in below
        regression = LogisticRegressionCV(
            Cs=10,
            cv=5,
            scoring="accuracy",
            max_iter=1000,
            l1_ratios=(0.0,),
            use_legacy_attributes=False,
        ).fit(((m - centre) / width).numpy(), y.numpy())
        slope = torch.from_numpy(regression.coef_[0]) / width
        intercept = torch.tensor(float(regression.intercept_[0]), dtype=torch.float64)
        self.weights_ = slope.to(self.weights_)
        self.bias_ = (intercept - centre @ slope).to(self.bias_)
        return self

    def cost(self) -> tuple[int, int]:
        n = 1 if self.weights_ is None else len(self.weights_)
        return (2 * n, n) if self.eta > 0 else (1, 0)


class _Confidences(OutputDetector):
    """M_l of every layer: the part of `LayeredMahalanobis` that is fitted on the maps."""

    gradient = "almost_everywhere"
    needs_labels = True

    means_: Float[Tensor, "k s"]  # whitened; layers side by side
    whitener_: Float[Tensor, "s d"]  # one block of rows a layer, padded to the widest

    def __init__(self, model: Model, *, layers: tuple[str, ...] | None) -> None:
        super().__init__(model)
        self.layers = layers
        self.taps = layers or ()
        self.maps = 0  # how many the layers gave in fitting

    def choose_taps(self, x: Images) -> None:
        if not self.taps:
            self.taps = self.model.stages(x)
        if not self.taps:
            raise CapabilityError(
                "expected a network with feature maps, found none: name layers with `layers`"
            )

    def start(self) -> None:
        self._moments: list[Moments] = []

    def see(self, out: Outputs, labels: Labels) -> None:
        if not self._moments:
            self._moments = [Moments(self.model.classes) for _ in out.maps]
        for moments, maps in zip(self._moments, out.maps, strict=True):
            moments.see(_pooled(maps), labels)

    def finish(self) -> None:
        self._moments[0].require_every_class()
        widest = max(m.mean.shape[1] for m in self._moments)
        blocks, means = [], []
        for m in self._moments:
            block, _ = whitener(m.within / m.count.sum())
            means.append(m.mean @ block.T)
            blocks.append(pad(block, (0, widest - len(block))))
        self.maps = len(self._moments)
        del self._moments
        self.means_, self.whitener_ = torch.cat(means, dim=1), torch.cat(blocks)

    def of(self, out: Outputs) -> Float[Tensor, "b l"]:
        """M_l of every layer in float64."""
        columns, start = [], 0
        for phi in map(_pooled, out.maps):
            rows = slice(start, start := start + phi.shape[1])
            white = phi.double() @ self.whitener_[rows, : phi.shape[1]].double().T
            nearest = squared_distances(white, self.means_[:, rows].double()).amin(dim=1)
            columns.append(-nearest / 2)
        return torch.stack(columns, dim=1)

    def score_outputs(self, out: Outputs) -> Scores:
        return -self.of(out).mean(dim=1)


def _pooled(maps: Tensor) -> Float[Tensor, "b c"]:
    """The mean over places: (b, c, h, w) or (b, c)."""
    return maps.flatten(2).mean(dim=2) if maps.ndim > 2 else maps
