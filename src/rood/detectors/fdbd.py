"""Distance of the features to the decision boundaries."""

import torch
from jaxtyping import Float
from torch import Tensor

from rood.detectors.base import OutputDetector
from rood.models.model import Outputs
from rood.numerics.streaming import Moments
from rood.shapes import Labels, Scores


class FDBD(OutputDetector):
    r"""s(x) = -mean_{c != y} (z_y - z_c) / ||w_y - w_c|| / ||f - mu||, y = argmax z.

    (z_y - z_c) / ||w_y - w_c|| is the distance of f to the boundary between the classes y and c, mu
    the mean training feature. Liu & Qin, *Fast Decision Boundary based Out-of-Distribution
    Detector*, ICML 2024, arXiv:2312.11536. Sign: negated.
    """

    gradient = "almost_everywhere"

    mean_: Float[Tensor, " d"]
    apart_: Float[Tensor, "k k"]  # ||w_y - w_c||

    def start(self) -> None:
        self._moments = Moments(1, means_only=True)

    def see(self, out: Outputs, labels: Labels) -> None:
        self._moments.see(out.features, labels * 0)

    def finish(self) -> None:
        self.mean_ = self._moments.mean[0]
        del self._moments
        w = self.model.head.weight.double()
        apart = torch.cdist(w, w, compute_mode="donot_use_mm_for_euclid_dist")
        self.apart_ = torch.where(apart > 0, apart, torch.ones_like(apart))  # w_y and itself

    def score_outputs(self, out: Outputs) -> Scores:
        z = out.logits.double()
        y = z.argmax(dim=1, keepdim=True)
        to_each = (z.gather(1, y) - z) / self.apart_.double()[y.squeeze(1)]
        from_mean = (out.features.double() - self.mean_.double()).norm(dim=1)
        tiny = torch.finfo(z.dtype).tiny
        return -to_each.sum(dim=1) / (z.shape[1] - 1) / from_mean.clamp_min(tiny)
