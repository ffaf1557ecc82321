"""The median score under Gaussian noise, certified by order statistics."""

import numpy as np
import torch
from scipy.stats import beta, norm
from torch import Tensor

from rood.detectors.base import Detector
from rood.errors import expect
from rood.numerics.box import Box
from rood.seeds import generator
from rood.shapes import Images
from rood.threat import L2

AT_ONCE = 256  # noisy images


def smoothed(
    detector: Detector,
    x: Images,
    threat: L2,
    *,
    sigma: float = 0.25,
    draws: int = 1000,
    confidence: float = 0.999,
    seed: int = 0,
) -> Box:
    r"""Bounds, near each image, of the median score of x + N(0, sigma^2), as often as said.

    With noise, the probability F(x) that a score is at most t is 1-Lipschitz in sigma times the
    normal quantile: at a distance e the median lies between the quantiles Phi(-e / sigma) and
    Phi(e / sigma) of the scores at x, Chiang et al., *Detection as Regression: Certified Object
    Detection by Median Smoothing*, NeurIPS 2020, arXiv:2007.03730. Those quantiles are bounded by
    order statistics of `draws` scores, both at once with probability `confidence` for each image.
    Where no order statistic is far enough out, the bound is infinite: the method abstains. Noisy
    pixels are cut to [0, 1], which is a part of the smoothed score.
    """
    expect(isinstance(threat, L2), "an L2 threat to smooth against", threat)
    expect(sigma > 0 and draws > 0, "sigma > 0 and draws > 0", sigma, draws)
    expect(0 < confidence < 1, "a confidence between 0 and 1", confidence)
    shift = threat.eps / sigma
    first, last = order(draws, float(norm.cdf(-shift)), float(norm.cdf(shift)), 1 - confidence)
    each = (_scores(detector, x[i : i + 1], sigma, draws, seed) for i in range(len(x)))
    ends = torch.tensor([_ends(s, first, last) for s in each], dtype=torch.float64).view(-1, 2)
    return Box(ends[:, 0], ends[:, 1])


def order(draws: int, low: float, high: float, risk: float) -> tuple[int, int]:
    """Places, from 1, of the order statistics below quantile `low` and above `high`; else 0, n + 1.

    The k-th of n scores exceeds the quantile q with the probability that a Beta(k, n + 1 - k) is
    above q; each side gets half of the risk.
    """
    places = np.arange(1, draws + 1)
    below = places[beta.cdf(low, places, draws + 1 - places) >= 1 - risk / 2]
    above = places[beta.sf(high, places, draws + 1 - places) >= 1 - risk / 2]
    return int(max(below, default=0)), int(min(above, default=draws + 1))


def _scores(detector: Detector, x: Images, sigma: float, draws: int, seed: int) -> Tensor:
    """Sorted scores of one image under noise."""
    source, found = generator(seed, "smoothing"), []
    with torch.no_grad():
        for start in range(0, draws, AT_ONCE):
            n = min(AT_ONCE, draws - start)
            noise = torch.randn(n, *x.shape[1:], generator=source).to(x)
            found.append(detector.score((x + sigma * noise).clamp(0, 1)))
    return torch.cat(found).double().sort().values


def _ends(scores: Tensor, first: int, last: int) -> tuple[float, float]:
    low = scores[first - 1].item() if first >= 1 else -torch.inf
    return low, scores[last - 1].item() if last <= len(scores) else torch.inf
