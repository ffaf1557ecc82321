"""Outliers: several sources joined, nothing among them that is known or will be tested."""

import io
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from refusals import refused
from torch.nn.functional import interpolate

from rood import data
from rood.data import contamination
from rood.data.balanced import Bend, balance, bent
from rood.data.base import ImageSet
from rood.data.contamination import NEAR, resembles
from rood.data.patch_shuffle import shuffled
from rood.errors import DataError, InputError
from rood.training import outliers

PACKS = os.environ.get("ROOD_DATA")
INSIDE = ImageSet("inside", torch.zeros(1, 3, 16, 16, dtype=torch.uint8), torch.tensor([0]), ("a",))


def pictures(n=40, seed=0, side=16, **rest):
    """Smooth and not too bright, as photographs are."""
    rng = np.random.default_rng(seed)
    small = rng.uniform(0, 190, (n, 1, 4, 4)) + rng.uniform(0, 60, (n, 3, 4, 4))
    large = interpolate(torch.from_numpy(small), (side, side), mode="bilinear")
    return ImageSet("pictures", large.round().to(torch.uint8), **rest)


def packed(path, images, classes=None):
    """The images as an .npz file."""
    more = {} if images.labels is None else {"labels": images.labels.numpy()}
    more |= {} if classes is None else {"classes": np.array(classes)}
    np.savez(path, images=images.images.numpy(), **more)
    return f"npz:{path}"


def jpeg(images):
    kept = []
    for x in images.images:
        file = io.BytesIO()
        Image.fromarray(x.permute(1, 2, 0).numpy()).save(file, "JPEG", quality=75)
        kept.append(np.asarray(Image.open(file)).transpose(2, 0, 1))
    return replace(images, images=torch.from_numpy(np.stack(kept)))


# --- joining ---


def test_a_comma_ends_a_spec_where_the_next_kind_is_named():
    several = "procedural:fractals,n=7,seed=3, procedural:noise,n=5,folder:a,b"
    assert outliers.listed(several) == [
        "procedural:fractals,n=7,seed=3",
        "procedural:noise,n=5",
        "folder:a,b",
    ]
    assert outliers.listed("some/folder,with comma") == ["some/folder,with comma"]
    nested = "patch_shuffle:4,seed=1@npz:x.npz,share:0-0.5@folder:y"
    assert outliers.listed(nested) == ["patch_shuffle:4,seed=1@npz:x.npz", "share:0-0.5@folder:y"]


def test_joined_sets_have_the_shape_of_the_training_images():
    found = outliers.load("procedural:fractals,n=7,procedural:colour_noise,n=5", INSIDE)
    assert found.images.shape == (12, 3, 16, 16)
    assert found.labels is None
    assert found.name == "fractals+colour_noise"


def test_eight_bit_and_float_sets_can_be_joined(tmp_path):
    np.savez(tmp_path / "float.npz", images=np.full((2, 16, 16, 3), 0.5, np.float32))
    found = outliers.load(f"procedural:noise,n=3,npz:{tmp_path / 'float.npz'}", INSIDE)
    assert found.images.shape[0] == 5
    assert torch.equal(found.pixels()[3:], torch.full((2, 3, 16, 16), 0.5))


# --- classes ---


def test_classes_that_the_network_has_are_left_out_by_name(tmp_path):
    classes = ["Pick-up Truck", "apple", "n02123045", "frog"]
    given = pictures(40, labels=torch.arange(40) % 4)
    spec = packed(tmp_path / "x.npz", given, classes)
    inside = replace(INSIDE, classes=("automobile", "cat", "Frog"), labels=torch.tensor([0]))
    found = outliers.load(spec, inside)
    assert torch.equal(found.images, given.images[given.labels == 1])
    assert any("30 images left out" in note and "Pick-up Truck" in note for note in found.notes)


def test_the_reverse_holds_too_and_numbers_are_no_names():
    cifar10 = pictures(4, labels=torch.arange(4), classes=("truck", "automobile", "deer", "7"))
    kept = contamination.without_classes(cifar10, ("pickup_truck", "bear", "7"))
    assert kept.labels.tolist() == [2, 3]
    assert contamination.without_classes(pictures(4), ("bear",)).notes == ()
    assert contamination.without_classes(cifar10, ("bear",)) is cifar10


@pytest.mark.skipif(not PACKS, reason="needs the packs in the folder ROOD_DATA")
def test_the_overlap_list_spells_classes_as_the_sets_do():
    loaded = [data.load(f"npz:$ROOD_DATA/{n}.npz", limit=1).classes
              for n in ("cifar10_test", "cifar100_test", "tinyimagenet_val_32")]  # fmt: skip
    known = {contamination._plain(name) for names in loaded for name in names}
    assert {name for group in contamination._groups() for name in group} <= known


# --- repeats ---


def test_exact_copies_of_trained_and_tested_images_are_left_out(tmp_path):
    given = pictures(40)
    spec = packed(tmp_path / "x.npz", given)
    trained = given.take(torch.arange(3))
    inside = replace(trained, labels=torch.zeros(3, dtype=torch.long), classes=("a",))
    found = outliers.load(spec, inside, [given.take(torch.arange(10, 15))])
    assert len(found) == 32
    assert "8 images left out: trained or tested on as well" in found.notes


@pytest.mark.parametrize(
    "change",
    [
        jpeg,
        lambda s: replace(s, images=(s.images // 2 + 60)),
        lambda s: replace(s, images=(s.images // 2 + 60).flip(3)),
    ],
)
def test_near_copies_of_tested_images_are_left_out_and_counted(change):
    given = pictures(40)
    dim = replace(given, images=given.images // 2 + 50)
    tested = change(given.take(torch.arange(5)))
    found = outliers.without_repeats(given if change is jpeg else dim, INSIDE, [tested])
    assert len(found) == 35
    assert found.notes == ("5 images left out: nearly equal to one that is tested on",)


def test_other_pictures_are_no_near_copies():
    assert not resembles(pictures(500, seed=1), [pictures(500, seed=2)]).any()
    others = [pictures(3, seed=1), jpeg(pictures(3))]
    assert resembles(pictures(3), others).all()
    assert resembles(pictures(3), others[::-1]).all()
    assert not resembles(pictures(3), []).any()


def test_the_distance_is_that_of_a_plain_loop():
    a, b = pictures(6, seed=3), pictures(5, seed=4)
    b = replace(b, images=torch.cat([b.images[:4], (a.images[:1] // 8) * 8]))

    def thumbnail(x):
        grey = x.numpy().astype(np.float64).mean(axis=0)
        small = grey.reshape(8, 2, 8, 2).mean(axis=(1, 3))
        return small - small.mean()

    expected = [
        min(
            np.sqrt(((thumbnail(x) - t) ** 2).mean())
            for y in b.images
            for t in (thumbnail(y), thumbnail(y)[:, ::-1])
        )
        < NEAR
        for x in a.images
    ]
    assert any(expected)
    assert resembles(a, [b]).tolist() == expected


def test_nothing_left_is_an_error(tmp_path):
    given = pictures(5)
    spec = packed(tmp_path / "x.npz", given)
    refused(DataError, "but none is left: 5 images left out", outliers.load, spec, INSIDE, [given])


# --- sources that change others ---


def test_shares_that_do_not_overlap_divide_a_set_as_split_does(tmp_path):
    spec = packed(tmp_path / "x.npz", pictures(200))
    whole = data.load(spec)
    fit = data.split(whole, fit=0.6, rest=0.4)
    for name, bounds in (("fit", "0-0.6"), ("rest", "0.6-1")):
        assert torch.equal(data.load(f"share:{bounds}@{spec}").images, fit[name].images)
    other_shape = data.load(f"share:0-0.6@{spec}", shape=(1, 8, 8))
    assert len(other_shape) == len(fit["fit"])
    for bad in ("0.6-0.2", "0-2", "x", "0-nan", "-1-1"):
        refused(InputError, "expected share:FROM-TO@SPEC", data.load, f"share:{bad}@{spec}")
    refused(InputError, "expected share:FROM-TO@SPEC", data.load, "share:0-1")
    refused(DataError, "got none of 200", data.load, f"share:0-0.0000001@{spec}")


def test_a_patch_shuffle_moves_whole_patches_of_each_image(tmp_path):
    x = torch.arange(2 * 3 * 8 * 8).view(2, 3, 8, 8)
    moved = shuffled(x, 4, np.array([1, 2], np.uint64))
    for before, after in zip(x, moved, strict=True):
        cut = lambda i: {tuple(p.flatten().tolist()) for r in i.split(2, 1) for p in r.split(2, 2)}
        assert cut(before) == cut(after)
        assert not torch.equal(before, after)


@settings(max_examples=50, deadline=None)
@given(key=st.integers(0, 2**63))
def test_no_image_stays_as_it_was(key):
    x = torch.arange(4).view(1, 1, 2, 2)
    assert not torch.equal(shuffled(x, 2, np.array([key], np.uint64)), x)


def test_a_patch_shuffle_depends_on_seed_and_image_alone(tmp_path):
    given = pictures(20, labels=torch.zeros(20, dtype=torch.long))
    spec = packed(tmp_path / "x.npz", given)
    shuffle = data.load(f"patch_shuffle:4@{spec}")
    assert shuffle.labels is None
    part = packed(tmp_path / "part.npz", given.take(torch.tensor([7])))
    assert torch.equal(data.load(f"patch_shuffle:4@{part}").images[0], shuffle.images[7])
    other = data.load(f"patch_shuffle:4,seed=1@{spec}")
    assert not torch.equal(other.images, shuffle.images)
    for bad in ("x", "1", "4,n=3", "4,seed=x"):
        refused(InputError, "expected patch_shuffle:SIDE", data.load, f"patch_shuffle:{bad}@{spec}")
    refused(InputError, "whose sides 5 divides, got 16x16", data.load, f"patch_shuffle:5@{spec}")


def test_balancing_keeps_originals_and_fills_up_every_class(tmp_path):
    given = pictures(13, labels=torch.tensor([0] * 9 + [1] * 4), classes=("a", "b"))
    found = data.load(f"balanced:11@{packed(tmp_path / 'x.npz', given, ('a', 'b'))}")
    assert found.labels.bincount().tolist() == [11, 11]
    assert torch.equal(found.images[:13], given.images)
    assert found.notes == ("9 distorted copies added, so that every class has 11 images",)
    assert torch.equal(balance(given, 11).images, found.images)
    assert balance(given, 3).images.shape == given.images.shape
    # seven copies of four originals: the second of one is bent otherwise than the first
    assert len({tuple(x.flatten().tolist()) for x in found.images}) == 22
    plain = packed(tmp_path / "y.npz", pictures(2))
    refused(InputError, "expected labelled", data.load, f"balanced:8@{plain}")
    refused(InputError, "expected balanced:COUNT@SPEC", data.load, "balanced:0@npz:x.npz")


def bend(turn=0.0, shift=(0.0, 0.0), corners=0.0):
    return Bend(turn, np.array(shift), np.broadcast_to(np.array(corners), (4, 2)).copy())


def test_a_bend_does_what_it_says():
    x = pictures(1, seed=5).images
    x = (x.float() + torch.arange(16)).clamp(0, 255).to(torch.uint8)
    assert torch.equal(bent(x, [bend()]), x)
    moved = bent(x, [bend(shift=(2 / 16, 1 / 16))])
    assert torch.equal(moved[..., 1:, 2:], x[..., :-1, :-2])
    assert not moved[..., 0, :].any()
    assert not moved[..., :2].any()
    turned = bent(x, [bend(turn=np.pi / 2)])
    assert any(torch.equal(turned, torch.rot90(x, k, (2, 3))) for k in (1, 3))
    # all corners look 2 pixels to the right: the picture moves left, and its edge is repeated
    askew = bent(x, [bend(corners=(2 / 16, 0))])
    assert (askew[..., :-2].int() - x[..., 2:].int()).abs().max() <= 1
    assert torch.equal(askew[..., -1], askew[..., -2])


def test_the_corners_of_a_skewed_image_come_from_where_they_look():
    from rood.data.balanced import _homographies

    jitter = np.random.default_rng(0).uniform(-0.2, 0.2, (3, 4, 2))
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.float64)
    for maps, moved in zip(_homographies(jitter), corners + jitter, strict=True):
        seen = np.c_[corners, np.ones(4)] @ maps.T
        np.testing.assert_allclose(seen[:, :2] / seen[:, 2:], moved, atol=1e-12)


# --- computed images ---


@pytest.mark.parametrize("kind", ["fractals", "colour_noise", "dead_leaves"])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 7, 9)])
def test_computed_outliers_follow_from_the_seed_and_differ(kind, shape):
    images = data.load(f"procedural:{kind},n=70", shape=shape)
    again = data.load(f"procedural:{kind},n=3", shape=shape)
    other = data.load(f"procedural:{kind},n=70,seed=1", shape=shape)
    assert torch.equal(images.images[:3], again.images)
    assert not torch.equal(images.images, other.images)
    assert len(set(images.hashes().tolist())) == 70
    assert (images.pixels().flatten(1).std(dim=1) > 0.01).float().mean() > 0.9


def test_colour_noise_has_more_of_low_frequencies():
    x = data.load("procedural:colour_noise,n=200").pixels().mean(dim=1)
    power = torch.fft.rfft2(x - x.mean(dim=(1, 2), keepdim=True)).abs().square().mean(dim=0)
    assert power[1, 1] > 10 * power[8, 8] > power[8, 8]


# --- paths ---


def test_paths_may_name_variables(tmp_path, monkeypatch):
    packed(tmp_path / "x.npz", pictures(2))
    monkeypatch.setenv("SOMEWHERE", str(tmp_path))
    assert len(data.load("npz:$SOMEWHERE/x.npz")) == 2
    assert len(data.load("npz:${SOMEWHERE}/x.npz")) == 2
    (tmp_path / "$NOTHING").mkdir()
    (tmp_path / "x.npz").rename(tmp_path / "$NOTHING" / "x.npz")
    assert len(data.load(f"npz:{tmp_path}/$NOTHING/x.npz")) == 2
    words = "expected the environment variable NOWHERE to be set, as '$NOWHERE/x.npz' needs it"
    refused(DataError, words, data.load, "npz:$NOWHERE/x.npz")
    refused(DataError, "variable NOWHERE to be set", data.load, "folder:$NOWHERE/x")
