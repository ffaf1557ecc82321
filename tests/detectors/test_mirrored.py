"""Mirrored: the mean over both images."""

import pytest
import torch
from references import close

from rood.detectors import (
    MSP,
    PRO,
    Mahalanobis,
    Mirrored,
)


@pytest.mark.parametrize("base", [MSP, Mahalanobis])
def test_mirrored_is_the_mean_of_the_scores_of_both_images(base, double, x):
    d = Mirrored(base(double.model)).fit(double.train)
    alone = base(double.model).fit(double.train)
    turned = torch.from_numpy(x.numpy()[:, :, :, ::-1].copy())
    by_hand = [
        (alone.score(a[None]) + alone.score(b[None])) / 2 for a, b in zip(x, turned, strict=True)
    ]
    close(d.score(x), torch.cat(by_hand).numpy(), rtol=1e-9)
    close(d.score(turned), d.score(x).numpy(), rtol=1e-9)
    assert (d.score(x) - alone.score(x)).abs().max() > 1e-6  # these images are not symmetric
    assert Mirrored(PRO(alone)).cost() == tuple(2 * passes for passes in PRO(alone).cost())


def test_mirrored_climbs_its_surrogates_in_both_images(double, x):
    base = Mahalanobis(double.model).fit(double.train)
    mirrored = Mirrored(base).surrogates()
    assert len(mirrored) == len(base.surrogates()) > 0
    for found, one in zip(mirrored, base.surrogates(), strict=True):
        close(found(x), ((one(x) + one(x.flip(-1))) / 2).numpy(), rtol=1e-9)
