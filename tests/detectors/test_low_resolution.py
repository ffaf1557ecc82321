"""Low resolution: resized by hand, fitted on resized images."""

import numpy as np
import pytest
import torch
from references import close
from torch.nn.functional import interpolate

from rood.detectors import (
    MSP,
    Ensemble,
    LowResolution,
    Mahalanobis,
)


def bilinear(image, h, w):
    """Half-pixel centres, edges repeated, no anti-aliasing."""
    c, h0, w0 = image.shape
    out = np.zeros((c, h, w))
    for i in range(h):
        for j in range(w):
            a = min(max((i + 0.5) * h0 / h - 0.5, 0), h0 - 1)
            b = min(max((j + 0.5) * w0 / w - 0.5, 0), w0 - 1)
            a0, b0 = int(a), int(b)
            a1, b1 = min(a0 + 1, h0 - 1), min(b0 + 1, w0 - 1)
            u, v = a - a0, b - b0
            top = (1 - v) * image[:, a0, b0] + v * image[:, a0, b1]
            low = (1 - v) * image[:, a1, b0] + v * image[:, a1, b1]
            out[:, i, j] = (1 - u) * top + u * low
    return out


@pytest.mark.parametrize("size", [(12, 20), (16, 16), (5, 3), (8, 8)])
def test_low_resolution_scores_the_image_resized_by_hand(size, double):
    x = double.inside[:3]
    by_hand = torch.from_numpy(np.stack([bilinear(image, *size) for image in x.numpy()]))
    by_torch = interpolate(x, size, mode="bilinear", align_corners=False, antialias=False)
    s = LowResolution(MSP(double.model), size=size).score(x)
    close(s, MSP(double.model).score(by_hand.clamp(0, 1)).numpy(), rtol=1e-9)
    close(s, MSP(double.model).score(by_torch).numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    "base", [Mahalanobis, lambda m: Ensemble([Mahalanobis(m)], scale="normal")]
)
def test_low_resolution_fits_its_base_on_resized_images(base, double, x):
    resize = lambda x: interpolate(x, (12, 12), mode="bilinear", align_corners=False)
    d = LowResolution(base(double.model), size=(12, 12)).fit(double.train)
    alone = base(double.model).fit([(resize(b), y) for b, y in double.train])
    close(d.score(x), alone.score(resize(x)).numpy(), rtol=1e-10)
