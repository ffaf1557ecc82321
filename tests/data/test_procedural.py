"""Computed images are what they claim, in every process; sources are found by name."""

import numpy as np
import pytest
import torch
from refusals import refused

from rood import data
from rood.data.procedural import KINDS, draw
from rood.errors import InputError, UnknownNameError


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 20, 32), (1, 1, 1)])
def test_computed_images_are_seeded_and_a_smaller_number_is_a_beginning(kind, shape):
    images = data.load(f"procedural:{kind},n=70,seed=3", shape=shape)
    assert (len(images), images.shape, images.name) == (70, shape, kind)
    first = data.load(f"procedural:{kind}, n=5, seed=3", shape=shape)
    assert torch.equal(first.images, images.images[:5])
    assert torch.equal(
        data.load(f"procedural:{kind},seed=3", shape=shape, limit=5).images, first.images
    )
    if shape[1] > 1:
        other = data.load(f"procedural:{kind},n=70,seed=4", shape=shape)
        assert (other.images != images.images).float().mean() > 0.05
        assert (images.images[:64] != images.images[1:65]).flatten(1).any(
            dim=1
        ).float().mean() > 0.9


def test_each_kind_of_computed_image_looks_as_it_is_called():
    x = {kind: torch.from_numpy(draw(kind, 64, 0, (3, 32, 32))).float() / 255 for kind in KINDS}
    spread = {kind: v.flatten(2).std(dim=2) for kind, v in x.items()}
    assert (spread["constant"] == 0).all()
    plain = ("constant", "signs")  # a short line on an even ground is nearly one colour
    assert all(spread[kind].min() > 0.05 for kind in KINDS if kind not in plain)
    assert spread["signs"].min() > 0.005
    assert spread["signs"].mean() > 0.05
    assert abs(x["noise"].mean() - 0.5) < 0.01
    assert 0.5 < ((x["gaussian"] == 0) | (x["gaussian"] == 1)).float().mean() < 0.7
    assert all(image.flatten(1).unique(dim=1).shape[1] == 2 for image in x["checkerboard"])
    assert (x["strokes"] == 0).float().mean() > 0.5
    assert (x["blobs"].amax(dim=(2, 3)) == 1).all()
    assert x["spiral"].mean(dim=1).std() < 0.01  # hues turn, brightness does not


def test_computing_and_loading_leave_the_global_generators_alone():
    numpy_state, torch_state = np.random.get_state(), torch.get_rng_state()
    for kind in KINDS:
        draw(kind, 3, 0, (3, 8, 8))
    data.load("digits:noise")
    data.load("digits:patches")
    after = np.random.get_state()
    assert all(np.array_equal(a, b) for a, b in zip(after, numpy_state, strict=True))
    assert torch.equal(torch.get_rng_state(), torch_state)


@pytest.mark.parametrize(
    "argument", ["noise,m=3", "noise,n", "noise,n=-1", "noise,n=0", "noise,n=1e3", "noise,seed=x"]
)
def test_options_of_computed_images_that_mean_nothing_are_refused(argument):
    refused(InputError, "expected", data.load, f"procedural:{argument}")


def test_unknown_names_suggest_the_nearest():
    refused(UnknownNameError, "did you mean 'folder'?", data.load, "foldr:/x")
    refused(UnknownNameError, "did you mean 'digits'?", data.load, "digit:inside")
    refused(UnknownNameError, "did you mean 'outliers'?", data.load, "digits:outlier")
    refused(UnknownNameError, "expected one of inside, near", data.load, "digits")
    refused(UnknownNameError, "did you mean 'stripes'?", data.load, "procedural:stripe")


def test_every_source_is_registered_and_says_what_it_is():
    assert {"cifar10", "digits", "folder", "npz", "procedural"} <= set(data.registry.names())
    for name in data.registry.names():
        first = (data.registry.get(name).__doc__ or "").splitlines()[0]
        assert first.endswith((".", ")"))


def test_computed_images_are_the_same_in_every_process():
    assert draw("noise", 1, 0, (1, 1, 6)).ravel().tolist() == [42, 87, 242, 140, 96, 34]
