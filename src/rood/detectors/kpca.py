"""Reconstruction error of kernel principal components."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from rood.detectors.base import OutputDetector
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.streaming import Moments
from rood.seeds import generator
from rood.shapes import Features, Labels, Scores


class KPCA(OutputDetector):
    r"""s(x) = ||r - P P' r||_2, r = phi(f / ||f||) - mu, P the principal directions of r.

    phi is the identity for the cosine kernel; for the cosine-Gaussian kernel, random Fourier
    features sqrt(2/M) cos(W u + c) with W ~ N(0, 2 gamma), c uniform in [0, 2 pi). P holds the
    fewest directions that explain the share `explained` of the variance. Fang et al., *Kernel PCA
    for Out-of-Distribution Detection*, NeurIPS 2024, arXiv:2402.02949 (CoP and CoRP). M is
    `mapped`, by default four times the number of features, as in the paper for 512.
    """

    directions_: Float[Tensor, "m d"]  # W; none for the cosine kernel
    phases_: Float[Tensor, " m"]  # c
    mean_: Float[Tensor, " p"]
    principal_: Float[Tensor, "p r"]

    def __init__(
        self,
        model: Model,
        *,
        kernel: Literal["cosine_gaussian", "cosine"] = "cosine_gaussian",
        gamma: float = 2.0,
        mapped: int | None = None,
        explained: float = 0.8,
        seed: int = 0,
    ) -> None:
        super().__init__(model)
        if kernel not in ("cosine_gaussian", "cosine"):
            raise InputError(f"expected kernel 'cosine_gaussian' or 'cosine', got {kernel!r}")
        if not (gamma > 0 and 0 < explained < 1 and (mapped is None or mapped >= 1)):
            raise InputError(
                "expected gamma > 0, 0 < explained < 1 and mapped >= 1, got "
                f"{gamma}, {explained} and {mapped}"
            )
        self.kernel = kernel
        self.gamma = gamma
        self.mapped = mapped
        self.explained = explained
        self.seed = seed

    def start(self) -> None:
        self._moments = Moments(1)
        weight = self.model.head.weight
        d = weight.shape[1]
        m = 0 if self.kernel == "cosine" else self.mapped or 4 * d
        g = generator(self.seed, "random Fourier features")
        w = torch.randn(m, d, generator=g, dtype=torch.float64)
        self.directions_ = (math.sqrt(2 * self.gamma) * w).to(weight.device)
        c = torch.rand(m, generator=g, dtype=torch.float64)
        self.phases_ = (2 * math.pi * c).to(weight.device)

    def see(self, out: Outputs, labels: Labels) -> None:
        self._moments.see(self.phi(out.features), labels * 0)

    def finish(self) -> None:
        _, self.mean_, scatter = self._moments.total()
        del self._moments
        values, basis = torch.linalg.eigh(scatter)  # ascending
        values, basis = values.flip(0).clamp_min(0), basis.flip(1)
        share = values.cumsum(0) / values.sum().clamp_min(torch.finfo(values.dtype).tiny)
        kept = int((share < self.explained).sum()) + 1
        self.principal_ = basis[:, : min(kept, len(values) - 1)].contiguous()

    def phi(self, f: Features) -> Float[Tensor, "b p"]:
        """The mapped features, in float64."""
        u = normalize(f.double(), dim=1)
        if self.kernel == "cosine":
            return u
        turned = u @ self.directions_.double().T + self.phases_.double()
        return math.sqrt(2 / len(self.phases_)) * turned.cos()

    def score_outputs(self, out: Outputs) -> Scores:
        r = self.phi(out.features) - self.mean_.double()
        p = self.principal_.double()
        return (r - r @ p @ p.T).norm(dim=1)
