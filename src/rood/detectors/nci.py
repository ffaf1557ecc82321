"""Angle between the centred features and the weights of the predicted class."""

import torch
from jaxtyping import Float
from torch import Tensor

from rood.detectors.base import OutputDetector
from rood.errors import InputError
from rood.models.model import Model, Outputs
from rood.numerics.streaming import Moments
from rood.shapes import Labels, Scores


class NCI(OutputDetector):
    r"""s(x) = -w_y . (f - mu) / ||f - mu|| - alpha ||f||_1, y = argmax z, mu the mean feature.

    Under neural collapse, the features of ID images lie near the weights of their class. Liu & Qin,
    *Detecting Out-of-Distribution Through the Lens of Neural Collapse*, CVPR 2025,
    arXiv:2311.01479. Sign: negated.
    """

    gradient = "almost_everywhere"

    mean_: Float[Tensor, " d"]

    def __init__(self, model: Model, *, alpha: float = 1e-4) -> None:
        super().__init__(model)
        if not alpha >= 0:
            raise InputError(f"expected alpha >= 0, got {alpha}")
        self.alpha = alpha

    def start(self) -> None:
        self._moments = Moments(1, means_only=True)

    def see(self, out: Outputs, labels: Labels) -> None:
        self._moments.see(out.features, labels * 0)

    def finish(self) -> None:
        self.mean_ = self._moments.mean[0]
        del self._moments

    def score_outputs(self, out: Outputs) -> Scores:
        f, w = out.features.double(), self.model.head.weight.double()
        centred = f - self.mean_.double()
        along = (w[out.logits.argmax(dim=1)] * centred).sum(dim=1)
        length = centred.norm(dim=1).clamp_min(torch.finfo(f.dtype).tiny)
        return -along / length - self.alpha * f.abs().sum(dim=1)
