"""Mahalanobis distance of normalised features."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from rood.detectors.mahalanobis import Mahalanobis
from rood.models.model import Outputs
from rood.shapes import Features, Labels


class MahalanobisPlusPlus(Mahalanobis):
    r"""s(x) = min_k (u - mu_k)' Sigma^-1 (u - mu_k), with u = f / ||f||.

    `Mahalanobis` with means and covariance of the normalised features, whose length does not vary
    within a class. Müller & Hein, *Mahalanobis++: Improving OOD Detection via Feature
    Normalization*, ICML 2025, arXiv:2505.18032.
    """

    def see(self, out: Outputs, labels: Labels) -> None:
        super().see(out._replace(features=normalize(out.features.double(), dim=1)), labels)

    def distances(self, f: Features) -> Float[Tensor, "b k"]:
        return super().distances(normalize(f.double(), dim=1))
