"""Energy after removing the leading singular component of the last two feature maps."""

import torch
from torch import Tensor

from rood.detectors.base import Detector, ScoreFunction
from rood.detectors.energy import Energy
from rood.errors import CapabilityError
from rood.models.model import Model
from rood.models.taps import changing
from rood.shapes import Images, Scores


class RankFeat(Detector):
    r"""s(x) = -T lse(z / T), z the mean logits after F <- F - s_1 u_1 v_1' in either of two stages.

    F is the map of the last, or the next-to-last, stage as a matrix (channels x places), and
    s_1 u_1 v_1' its leading singular component. Song et al., *RankFeat: Rank-1 Feature Removal for
    Out-of-distribution Detection*, NeurIPS 2022, arXiv:2209.08590. The gradient treats singular
    vectors as constants: theirs explodes where two singular values meet.
    """

    gradient = "surrogate"

    def __init__(
        self, model: Model, *, layers: tuple[str, ...] | None = None, temperature: float = 1.0
    ) -> None:
        super().__init__(model)
        self.layers = layers  # two stages; None: the last two of the network
        self.temperature = temperature

    def score_images(self, x: Images) -> Scores:
        names = self.layers or self.model.stages(x)[-2:]
        if not names:
            raise CapabilityError("expected a network with feature maps for RankFeat, found none")
        logits = []
        for layer in self.model.layers(names):
            with changing(layer, without_leading):
                logits.append(self.model(x).logits)
        z = torch.stack(logits).mean(dim=0)
        return -self.temperature * (z / self.temperature).logsumexp(dim=1)

    def cost(self) -> tuple[int, int]:
        return 2, 0

    def surrogates(self) -> tuple[ScoreFunction, ...]:
        return (Energy(self.model).score_images,)


def without_leading(maps: Tensor) -> Tensor:
    """F - s_1 u_1 v_1' for each image, from the eigenvectors of F F' or F' F, the smaller one."""
    f = maps.flatten(2)  # (b, c, hw)
    wide = f.shape[1] <= f.shape[2]
    rows = f if wide else f.transpose(1, 2)  # (b, small, large)
    with torch.no_grad():
        double = rows.double()
        _, vectors = torch.linalg.eigh(double @ double.transpose(1, 2))  # eigenvalues ascend
        u = vectors[..., -1:].to(f.dtype)  # (b, small, 1)
    rest = rows - u @ (u.transpose(1, 2) @ rows)
    return (rest if wide else rest.transpose(1, 2)).reshape(maps.shape)
