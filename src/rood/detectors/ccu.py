"""Confidence that provably decreases away from the training images."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from rood.detectors.base import Detector, check_images
from rood.errors import InputError
from rood.models.generative.mixtures import Kept, Mixtures, fitted
from rood.models.model import Model
from rood.numerics.softmax import margin
from rood.seeds import generator, row_keys
from rood.shapes import Batches, Images, Scores
from rood.threat import Threat

MOST = 10_000  # training images that the mixtures are fitted on


class CCU(Detector):
    r"""s(x) = log((1 - q) / (q - 1/k)), q = (p g_in + weight g_out / k) / (g_in + weight g_out).

    p is the largest softmax of the k classes, g_in and g_out are mixtures of Gaussians over images
    and outliers. Meinke and Hein, *Towards neural networks that provably know when they don't
    know*, ICLR 2020, arXiv:1909.12180, scores -log q: the same ranking, but q ties at 1/k far away.
    The mixtures are those that the objective `ccu` left in the network, where it did; otherwise
    fit() learns them from the images, and g_out has the same centroids with 4 times the variance.
    """

    axes_: Float[Tensor, "r n"]
    scales_: Float[Tensor, " s"]
    inside_: Float[Tensor, "k m"]
    outside_: Float[Tensor, "l m"]
    log_var_in_: Float[Tensor, " k"]
    log_var_out_: Float[Tensor, " l"]

    def __init__(
        self, model: Model, *, weight: float = 1.0, centroids: int = 100, axes: int = 100
    ) -> None:
        super().__init__(model)
        if not (weight > 0 and centroids >= 1 and axes >= 1):
            raise InputError(
                "expected weight > 0, centroids >= 1 and axes >= 1, got "
                f"{weight}, {centroids} and {axes}"
            )
        self.weight = weight
        self.centroids = centroids
        self.axes = axes

    @classmethod
    def example(cls, model: Model) -> "CCU":
        """Few centroids, for the few images of the contract checks."""
        return cls(model, centroids=6, axes=20)

    def fit_images(self, batches: Batches) -> None:
        kept = getattr(self.model.net, "mixtures", None)
        if isinstance(kept, Kept) and not kept.empty:
            found = kept.value
        else:
            images = _some(batches, self.model)
            source = generator(0, "ccu")
            found = fitted(images, None, source, axes=self.axes, centroids=self.centroids)
        for name, value in found._asdict().items():
            setattr(self, f"{name}_", value.detach().clone())

    def score_images(self, x: Images) -> Scores:
        z = self.model(x).logits.double()
        k, m = z.shape[1], margin(z)
        log_rest = -softplus(-m)  # log(1 - p)
        fading = (m - math.log(k - 1)).clamp_max(-1e-12)  # 0 where p = 1/k
        log_gain = math.log((k - 1) / k) + torch.log(-torch.expm1(fading)) - softplus(m)
        outside = math.log((k - 1) / k) - self._log_odds(x)
        return (torch.logaddexp(log_rest, outside) - log_gain).to(x.dtype)

    def least_score(self, x: Images, radius: float) -> Scores:
        """The certificate: no image closer to x than `radius`, in the metric, scores below this."""
        self.check_fitted()
        return -self._log_odds(x, radius)

    def most_confidence(self, x: Images, radius: float) -> Scores:
        """The same as the largest q: no image within the radius has more confidence."""
        return self.confidence(self.least_score(x, radius))

    def confidence(self, scores: Scores) -> Scores:
        """q of images with these scores: (1 + e^s / k) / (1 + e^s)."""
        share = torch.sigmoid(-scores)  # of g_in, were p = 1
        return share + (1 - share) / self.model.classes

    def radius(self, threat: Threat) -> float:
        """How far, in the metric, an image can go in a threat model: what to certify for it."""
        self.check_fitted()
        return self._mixtures().radius(threat)

    def _log_odds(self, x: Images, radius: float = 0.0) -> Scores:
        return self._mixtures().log_ratio(x, radius) - math.log(self.weight)

    def _mixtures(self) -> Mixtures:
        return Mixtures(*(getattr(self, f"{name}_") for name in Mixtures._fields))


def _some(batches: Batches, model: Model) -> Images:
    """At most `MOST` images, chosen independently of batches and order."""
    images, keys = torch.empty(0), torch.empty(0, dtype=torch.long)
    for x, _ in batches:
        check_images(x, model)
        images = torch.cat([images, x]) if len(images) else x
        keys = torch.cat([keys.to(x.device), row_keys(x)])
        order = keys.argsort(stable=True)[:MOST]
        images, keys = images[order], keys[order]
    if not len(images):
        raise InputError("expected training images to fit on, got none")
    return images
