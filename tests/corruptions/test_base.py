"""Corruptions: what they do to known images, and that they depend on the image alone."""

from io import BytesIO
from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter
from scipy.stats import kstest

from rood import data
from rood.corruptions import corrupt, names
from rood.errors import InputError, UnknownNameError
from rood.seeds import generator


def leaves(n=6, shape=(3, 32, 32)):
    return data.load(f"procedural:dead_leaves,n={n}", shape=shape).pixels()


def off(a, b):
    return (a - b).square().mean().sqrt().item()


@pytest.mark.parametrize("kind", names())
def test_a_corruption_grows_with_severity_and_depends_on_the_image_alone(kind):
    x = leaves()
    found = [corrupt(x, kind, severity) for severity in range(1, 6)]
    sizes = [off(v, x) for v in found]
    assert sizes[0] > 0
    assert sizes[4] > 1.2 * sizes[0]
    assert all(b > 0.93 * a for a, b in pairwise(sizes))
    for v in found:
        assert v.shape == x.shape
        assert v.dtype == x.dtype
        assert ((v >= 0) & (v <= 1)).all()
        torch.testing.assert_close(255 * v, (255 * v).round(), atol=1e-4, rtol=0)
    assert torch.equal(corrupt(x.flip(0)[2:3], kind, 3), found[2].flip(0)[2:3])


@pytest.mark.parametrize("shape", [(1, 28, 28), (2, 9, 12), (3, 70, 66)])
def test_every_kind_takes_grey_odd_and_large_images(shape):
    x = torch.rand(2, *shape, generator=generator(0, "x"))
    for kind in names():
        assert corrupt(x, kind, 5).shape == x.shape
        assert corrupt(x[:0], kind, 5).shape == (0, *shape)


def test_noise_has_the_published_strength():
    grey = torch.full((1, 3, 64, 64), 100 / 255)
    noisy = corrupt(grey, "gaussian_noise", 3) - grey
    assert noisy.std().item() == pytest.approx(0.08, rel=0.03)
    photons = 100 * corrupt(grey, "shot_noise", 3)
    assert photons.mean().item() == pytest.approx(100 * 100 / 255, rel=0.01)
    assert photons.var().item() == pytest.approx(100 * 100 / 255, rel=0.05)
    hit = corrupt(grey, "impulse_noise", 5) != grey
    assert hit.double().mean().item() == pytest.approx(0.07, rel=0.08)
    large = torch.full((1, 3, 96, 96), 100 / 255)
    assert (corrupt(large, "gaussian_noise", 1) - large).std().item() == pytest.approx(
        0.08, rel=0.03
    )


def test_the_photons_of_shot_noise_follow_a_poisson_distribution():
    grey = torch.full((1, 1, 64, 64), 51 / 255)
    counts = (50 * corrupt(grey, "shot_noise", 5)).round().flatten().double()
    spread = counts + torch.rand(counts.shape, generator=generator(0, "ties"), dtype=torch.float64)
    drawn = np.random.default_rng(0).poisson(10, counts.shape) + np.random.default_rng(1).random(
        counts.shape
    )
    assert kstest(spread.numpy(), drawn).pvalue > 1e-3


def test_a_gaussian_blur_and_contrast_are_those_of_their_definition():
    x = leaves(2)
    blurred = np.stack(
        [[gaussian_filter(c, 0.7, mode="nearest") for c in v] for v in x.double().numpy()]
    )
    torch.testing.assert_close(
        corrupt(x, "gaussian_blur", 3).double(), torch.from_numpy(blurred), atol=0.503 / 255, rtol=0
    )
    mean = x.mean(dim=(2, 3), keepdim=True)
    flat = corrupt(x, "contrast", 5)
    torch.testing.assert_close(flat, 0.15 * (x - mean) + mean, atol=0.503 / 255, rtol=0)


def test_motion_and_focus_spread_a_point_of_light_and_keep_its_sum():
    point = torch.zeros(1, 1, 33, 33)
    point[..., 16, 16] = 1.0
    for kind in ("motion_blur", "defocus_blur"):
        lit = corrupt(point, kind, 5)
        assert lit.sum().item() == pytest.approx(1, abs=0.05)
        assert lit.amax() < 0.5


def test_brightness_keeps_hue_and_fog_keeps_the_brightest_value():
    x = leaves(2) * 0.5
    bright = corrupt(x, "brightness", 2)
    torch.testing.assert_close(bright.amax(dim=1), x.amax(dim=1) + 0.1, atol=0.503 / 255, rtol=0)
    foggy = corrupt(x, "fog", 5)
    assert (foggy.flatten(1).amax(dim=1) <= x.flatten(1).amax(dim=1) + 1 / 255).all()


def test_jpeg_is_what_a_file_of_that_quality_holds():
    x = leaves(1)
    pixels = (255 * x[0]).round().to(torch.uint8).permute(1, 2, 0).numpy()
    file = BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=58)
    again = torch.from_numpy(np.asarray(Image.open(file)).copy()).permute(2, 0, 1)
    assert torch.equal((255 * corrupt(x, "jpeg", 3)[0]).round().to(torch.uint8), again)


def test_unknown_kinds_and_severities_are_refused():
    with pytest.raises(
        UnknownNameError, match="no corruption is called 'frog': did you mean 'fog'"
    ):
        corrupt(leaves(1), "frog", 1)
    with pytest.raises(InputError, match="expected a severity from 1 to 5, got 6"):
        corrupt(leaves(1), "fog", 6)
