"""Outliers: several sources joined, nothing among them that is known or will be tested."""

import io
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from pictures import packed, pictures
from PIL import Image
from refusals import refused

from rood import data
from rood.data import contamination
from rood.data.base import ImageSet
from rood.data.contamination import NEAR, resembles
from rood.errors import DataError
from rood.training import outliers

PACKS = os.environ.get("ROOD_DATA")
INSIDE = ImageSet("inside", torch.zeros(1, 3, 16, 16, dtype=torch.uint8), torch.tensor([0]), ("a",))


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
