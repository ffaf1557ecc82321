"""Reconstruction error of an auto-encoder."""

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from rood.detectors.base import Detector
from rood.errors import InputError
from rood.models.generative.autoencoder import AutoEncoderNetwork
from rood.models.model import Model
from rood.shapes import Batches, Images, Scores

Residual = Literal["l2", "l1", "mahalanobis"]
LEAST_SPREAD = 1 / 255  # of a pixel's residual: one that never changes would divide by 0


class AutoEncoder(Detector):
    r"""s(x) = (1/n) sum_i |(r_i - m_i) / v_i|^p, r = x - x', x' the reconstruction of x.

    p = 2, or 1 for `residual="l1"`; m = 0 and v = 1, and for `residual="mahalanobis"` mean and
    standard deviation of each pixel's residual on the training images. Discussed by Liang et al.,
    *An Algorithm for Out-Of-Distribution Attack to Neural Network Encoder*, arXiv:2009.08016: an
    image with another image's code is reconstructed as that image, which it does not resemble. The
    model is one of `rood.models.generative.autoencoder`.
    """

    centre_: Float[Tensor, "c h w"]
    spread_: Float[Tensor, "c h w"]

    def __init__(self, model: Model, *, residual: Residual = "l2") -> None:
        if residual not in get_args(Residual):
            raise InputError(f"expected residual l2, l1 or mahalanobis, got {residual!r}")
        AutoEncoderNetwork.on_plain_pixels(model)
        super().__init__(model)
        self.residual = residual
        if residual != "mahalanobis":  # nothing to learn
            self.centre_, self.spread_ = self._neutral()

    @classmethod
    def example(cls, model: Model, *, residual: Residual = "mahalanobis") -> "AutoEncoder":
        """A small untrained auto-encoder, for the contract checks."""
        coder = AutoEncoderNetwork.beside(model, size=8, width=4, numbers=4)
        return cls(coder, residual=residual)

    def fit_images(self, batches: Batches) -> None:
        if self.residual != "mahalanobis":
            self.centre_, self.spread_ = self._neutral()
            return
        n, total, squares = 0, torch.zeros(()), torch.zeros(())
        for x, _ in batches:
            r = self._left(x).double()
            n, total, squares = n + len(r), total + r.sum(dim=0), squares + r.square().sum(dim=0)
        if n == 0:
            raise InputError("expected training images to fit on, got none")
        mean = total / n
        spread = (squares / n - mean.square()).clamp_min(LEAST_SPREAD**2).sqrt()
        self.centre_, self.spread_ = mean, spread

    def score_images(self, x: Images) -> Scores:
        r = ((self._left(x) - self.centre_) / self.spread_).flatten(1)
        size = r.abs() if self.residual == "l1" else r.square()
        return size.mean(dim=1).to(x.dtype)

    def _left(self, x: Images) -> Images:
        return x - AutoEncoderNetwork.of(self.model).reconstruct(x)

    def _neutral(self) -> tuple[Tensor, Tensor]:
        zero = self.model.mean.new_zeros(1, 1, 1)
        return zero, zero + 1
