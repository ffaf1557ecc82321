"""Mahalanobis distance of normalised features."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from rood.detectors.base import OutputBox
from rood.detectors.mahalanobis import Mahalanobis
from rood.models.model import Outputs
from rood.numerics.box import Box
from rood.shapes import Features, Labels

SHORTEST = 1e-12  # length below which `normalize` does not stretch features


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

    def bounds_from(self, out: OutputBox) -> Box:
        """A u = A f / ||f||; as u has length 1 at most, no entry exceeds the length of its row."""
        assert out.forms is not None
        squares = out.features.squared()
        shortest, longest = (v.sum(dim=1, keepdim=True).sqrt() for v in squares)
        inverse = Box(1 / longest.clamp_min(SHORTEST), 1 / shortest.clamp_min(SHORTEST))
        rows = self.forms().norm(dim=1).expand_as(out.forms.low)
        along = out.forms.times(Box(*(v.expand_as(rows) for v in inverse)))
        return super().bounds_from(out._replace(forms=along.within(Box(-rows, rows))))
