"""Masks that change the pixels before the network sees them."""

import io

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from scipy.ndimage import median_filter
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad

from benchmarks.masks.base import Mask
from rood.detectors.base import ScoreFunction
from rood.numerics.softmax import margin
from rood.shapes import Batches, Images, Scores


class Thermometer(Mask):
    """Each pixel as the share of 16 levels that it exceeds: comparisons have no gradient."""

    def score_images(self, x: Images) -> Scores:
        levels = (torch.arange(16, dtype=x.dtype, device=x.device) + 0.5) / 16
        code = (x[..., None] > levels).to(x)  # (b, c, h, w, 16)
        return margin(self.model(code.mean(dim=-1)).logits)


class FiveLevels(Mask):
    """Pixels rounded to 5 levels: most perturbations are lost and the others become large."""

    def score_images(self, x: Images) -> Scores:
        return margin(self.model((4 * x + 0.2).round() / 4).logits)

    def twins(self) -> tuple[ScoreFunction, ...]:
        return tuple(self._soft(sharp) for sharp in (5.0, 15.0, 40.0))

    def _soft(self, sharp: float) -> ScoreFunction:
        def score(x: Images) -> Scores:
            steps = [(sharp * (4 * x + 0.2 - k - 0.5)).sigmoid() for k in range(4)]
            return margin(self.model(torch.stack(steps).sum(dim=0) / 4).logits)

        return score


class BitDepth(Mask):
    """Pixels reduced to 4 bits by integer arithmetic, which has no gradient."""

    def score_images(self, x: Images) -> Scores:
        whole = (255 * x).round().to(torch.uint8)
        return margin(self.model((whole >> 4).to(x) / 15).logits)

    def twins(self) -> tuple[ScoreFunction, ...]:
        return (lambda x: margin(self.model((17 * x - 0.5) / 16).logits),)


class Jpeg(Mask):
    """Every image is written and read as JPEG by PIL, outside of torch."""

    def score_images(self, x: Images) -> Scores:
        return margin(self.model(torch.stack([self._written(one) for one in x])).logits)

    def _written(self, one: Float[Tensor, "c h w"]) -> Float[Tensor, "c h w"]:
        pixels = (255 * one[0]).round().to(torch.uint8).cpu().numpy()
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=75)
        return torch.from_numpy(np.array(Image.open(file))).to(one)[None] / 255


class MedianSqueeze(Mask):
    """A median filter of SciPy in front of the network, in which the gradient ends."""

    def score_images(self, x: Images) -> Scores:
        smooth = median_filter(x.detach().cpu().numpy(), size=(1, 1, 2, 2))
        return margin(self.model(torch.from_numpy(smooth).to(x)).logits)

    def twins(self) -> tuple[ScoreFunction, ...]:
        return (self._in_torch,)

    def _in_torch(self, x: Images) -> Scores:
        around = pad(x, (1, 0, 1, 0), mode="reflect").unfold(2, 2, 1).unfold(3, 2, 1)
        # SciPy's median of four is the third
        smooth = around.flatten(4).sort(dim=4).values[..., 2]
        return margin(self.model(smooth).logits)


class DenoiserInFront(Mask):
    """A projection onto 100 principal components of training images, under `no_grad`."""

    mean_: Float[Tensor, " p"]
    basis_: Float[Tensor, "p k"]

    def fit_images(self, batches: Batches) -> None:
        x = torch.cat([x.flatten(1) for x, _ in batches])
        self.mean_ = x.mean(dim=0)
        self.basis_ = torch.linalg.svd(x - self.mean_, full_matrices=False).Vh[:100].T

    def _denoised(self, x: Images) -> Images:
        flat = x.flatten(1) - self.mean_
        return (flat @ self.basis_ @ self.basis_.T + self.mean_).view_as(x).clamp(0, 1)

    def score_images(self, x: Images) -> Scores:
        with torch.no_grad():
            clean = self._denoised(x)
        return margin(self.model(clean).logits) + 0.01 * x.flatten(1).mean(dim=1)

    def twins(self) -> tuple[ScoreFunction, ...]:
        return (lambda x: margin(self.model(self._denoised(x)).logits),)


class HighFrequencyAlarm(Mask):
    """A jump of the score where the image is rougher than every training image: no gradient."""

    limit_: Float[Tensor, ""]

    def fit_images(self, batches: Batches) -> None:
        self.limit_ = torch.cat([self._roughness(x) for x, _ in batches]).max()

    def _roughness(self, x: Images) -> Scores:
        return (x - avg_pool2d(x, 3, 1, 1)).abs().flatten(1).mean(dim=1)

    def score_images(self, x: Images) -> Scores:
        return margin(self.model(x).logits) + 20 * (self._roughness(x) > self.limit_)

    def twins(self) -> tuple[ScoreFunction, ...]:
        def penalised(x: Images) -> Scores:
            over = (self._roughness(x) - 0.98 * self.limit_).relu()
            return margin(self.model(x).logits) + 2000 * over

        return (penalised,)


class OddPixels(Mask):
    """The image is shifted by one pixel where its sum of 8-bit values is odd: a comb of cliffs."""

    def score_images(self, x: Images) -> Scores:
        odd = (255 * x).round().flatten(1).sum(dim=1) % 2 == 1
        moved = torch.where(odd.view(-1, 1, 1, 1), x.roll(1, dims=3), x)
        return margin(self.model(moved).logits)


class Stairs(Mask):
    """A staircase on every pixel that falls between its jumps: the slope is wrong everywhere."""

    def score_images(self, x: Images) -> Scores:
        whole = (32 * x).round() / 32
        return margin(self.model(whole - 0.3 * (x - whole)).logits)
