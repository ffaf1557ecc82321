"""The gallery of masks: what is in it, what is held out, and that each mask protects nothing."""

import pytest
import torch

from benchmarks.masks import FIRST, HELD_OUT, MASKS, digest, tuned_on
from benchmarks.masks.truth import build, digits, hidden, noise_of, truth
from rood.metrics import auroc


def test_the_gallery_is_large_and_every_mask_says_what_it_hides():
    assert len(MASKS) >= 40
    for name, mask in MASKS.items():
        assert mask.label() == name
        assert "__doc__" in vars(mask), name
        assert mask.__doc__.count("\n") == 0, name


def test_the_held_out_masks_have_the_smallest_digests_of_all_but_the_first():
    later = sorted((name for name in MASKS if name not in FIRST), key=digest)
    assert sorted(HELD_OUT) == sorted(later[:8])
    assert sorted([*tuned_on(), *HELD_OUT]) == sorted(MASKS)


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_separates_clean_images_as_the_detector_below_it(name):
    n = 16
    images, mask = digits(n), build(name, n)
    x = torch.cat([images.inside, images.outside])
    with noise_of(0), torch.no_grad():
        s = mask.score(x)
        honest = hidden(name, n).score(x)
    assert s.shape == (2 * n,)
    if name != "saturated":  # ties of a probability of 1 count half
        apart = auroc(inside=honest[:n], outside=honest[n:])
        assert auroc(inside=s[:n], outside=s[n:]) > apart - 0.15


@pytest.mark.parametrize("name", ["flip", "quantised", "off_grid_freeze"])
def test_a_mask_protects_nothing(name):
    assert truth(name, 8) < 0.05
