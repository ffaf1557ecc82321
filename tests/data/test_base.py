"""An image set refuses what is not images, and divides by content alone."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from rood.data import ImageSet, base, split
from rood.data.base import at_once, prefetched
from rood.errors import DataError, InputError


def image_set(n=40, shape=(1, 4, 4), seed=0, **rest):
    pixels = np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)
    return ImageSet("some", torch.from_numpy(pixels), **rest)


def test_pixels_are_float32_in_the_unit_box_whatever_was_stored():
    eight_bit = image_set()
    assert torch.equal(eight_bit.pixels(), eight_bit.images.float() / 255)
    wide = ImageSet("wide", eight_bit.images.double() / 255)
    assert wide.pixels().dtype == torch.float32
    assert torch.equal(wide.pixels(), eight_bit.pixels())


def test_batches_join_to_the_whole_set_and_have_minus_one_for_no_label():
    images = image_set(10, labels=torch.arange(10) % 3)
    xs, ys = zip(*images.batches(4), strict=True)
    assert [len(x) for x in xs] == [4, 4, 2]
    assert torch.equal(torch.cat(xs), images.pixels())
    assert torch.equal(torch.cat(ys), torch.arange(10) % 3)
    assert next(iter(image_set(3).batches(8)))[1].tolist() == [-1, -1, -1]
    refused(InputError, "at least one image per batch, got 0", images.batches, 0)


def test_groups_go_with_their_images_and_a_split_keeps_each_on_one_side():
    rng = np.random.default_rng(0)
    pixels = torch.from_numpy(rng.integers(0, 256, (600, 1, 4, 4), np.uint8))
    ids = tuple(f"clip {i // 6}" for i in range(600))
    images = ImageSet("clips", pixels, groups=ids)
    assert "100 groups" in repr(images)
    assert images.take(torch.tensor([0, 7])).groups == ("clip 0", "clip 1")
    assert images.thin(100).groups == tuple(f"clip {i}" for i in range(100))
    parts = split(images, fit=0.5, test=0.5)
    fit, test = (set(part.groups) for part in parts.values())
    assert not fit & test
    assert len(fit | test) == 100
    assert 0.35 < len(fit) / 100 < 0.65
    again = split(images, "another purpose", fit=0.5, test=0.5)
    assert set(again["fit"].groups) != fit
    assert images.group_numbers().tolist() == [i // 6 for i in range(600)]
    assert ImageSet("none", pixels).group_numbers() is None
    for wrong, known in ((ids[:5], 5), (("", *ids[1:]), 599)):
        says = f"expected a group for each of the 600 images of 'clips', got {known}"
        refused(InputError, says, ImageSet, "clips", pixels, groups=wrong)


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ({}, "unlabelled"),
        ({"labels": torch.tensor([0, 1, 1]), "classes": ("a", "b")}, "labelled, 2 classes"),
        ({"labels": torch.tensor([0, 1, -1])}, "2 labelled"),
        ({"notes": ("one was", "two was")}, "unlabelled, notes: one was; two was"),
    ],
)
def test_its_repr_tells_counts_shape_classes_and_labels(rest, said):
    want = f"<ImageSet 'some': 3 images of shape (1, 4, 4), uint8, {said}>"
    assert repr(image_set(3, **rest)) == want


def test_batches_can_be_gone_through_again():
    batches = image_set(5).batches(2)
    assert [len(x) for x, _ in batches] == [len(x) for x, _ in batches] == [2, 2, 1]


def test_a_part_is_divided_again_only_for_another_purpose():
    rng = np.random.default_rng(0)
    images = ImageSet("many", torch.from_numpy(rng.integers(0, 256, (400, 1, 4, 4), np.uint8)))
    rest = split(images, fit=0.6, rest=0.4)["rest"]
    refused(DataError, "got none in 'calibrate'", split, rest, calibrate=0.25, test=0.75)
    parts = split(rest, "threshold", calibrate=0.25, test=0.75)
    assert len(parts["calibrate"]) + len(parts["test"]) == len(rest)
    assert 0.15 < len(parts["calibrate"]) / len(rest) < 0.35


def test_take_keeps_labels_and_files_beside_their_images():
    images = image_set(5, labels=torch.arange(5), files=("a", "b", "c", "d", "e"))
    mask = torch.tensor([True, False, False, True, False])
    for part in (images.take(mask), images.take(torch.tensor([0, 3]))):
        assert torch.equal(part.images, images.images[[0, 3]])
        assert (part.labels.tolist(), part.files) == ([0, 3], ("a", "d"))
    refused(InputError, "expected a mask of 5 images, got (4,)", images.take, mask[:4])
    refused(InputError, "expected indices below 5, got 5", images.take, torch.tensor([5]))
    assert len(images.take(torch.zeros(5, dtype=torch.bool))) == 0


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (dict(images=torch.zeros(2, 4, 4)), "got (2, 4, 4)"),
        (dict(images=torch.zeros(2, 4, 4, 3)), "got (2, 4, 4, 3)"),
        (dict(images=torch.zeros(2, 1, 4, 4, dtype=torch.int64)), "got torch.int64"),
        (dict(images=torch.full((2, 1, 4, 4), 255.0)), "got [255, 255]: divide 8-bit values by"),
        (dict(images=torch.full((2, 1, 4, 4), -0.1)), "expected pixels in [0, 1]"),
        (dict(images=torch.full((2, 1, 4, 4), float("nan"))), "expected pixels in [0, 1]"),
        (dict(labels=torch.zeros(3, dtype=torch.int64)), "expected 2 whole-number labels"),
        (dict(labels=torch.zeros(2)), "got torch.float32"),
        (dict(labels=torch.tensor([0, 2]), classes=("x", "y")), "from 0 to 1 in 's'"),
        (dict(labels=torch.tensor([0, -2])), "got -2 to 0"),
        (dict(files=("a",)), "expected 2 file names"),
    ],
)
def test_an_image_set_refuses_what_is_not_images(bad, words):
    good = dict(name="s", labels=None, classes=(), files=())
    fields = good | dict(images=torch.zeros(2, 1, 4, 4, dtype=torch.uint8)) | bad
    images = object.__new__(ImageSet)  # past any shape checker, which tests alone may have on
    for name, value in fields.items():
        object.__setattr__(images, name, value)
    refused(InputError, words, images.__post_init__)


def test_the_fingerprint_sees_pixels_labels_order_and_shape_and_nothing_else():
    images = image_set(6, labels=torch.arange(6))
    same = ImageSet("other", images.images.clone(), images.labels.int(), notes=("read twice",))
    assert images.fingerprint() == same.fingerprint()
    assert len(images.fingerprint()) == 64
    changed = images.images.clone()
    changed[3, 0, 1, 1] ^= 1
    others = [
        ImageSet("s", changed, images.labels),
        ImageSet("s", images.images, images.labels.flip(0)),
        ImageSet("s", images.images),
        ImageSet("s", images.images.reshape(6, 1, 2, 8), images.labels),
        images.take(torch.tensor([1, 0, 2, 3, 4, 5])),
    ]
    assert len({i.fingerprint() for i in [images, *others]}) == 6
    strided = ImageSet("s", images.images.transpose(2, 3).contiguous().transpose(2, 3))
    assert strided.fingerprint() == others[2].fingerprint()


def test_hashes_are_of_the_8_bit_pixels():
    images = image_set(20)
    assert images.hashes().dtype == np.uint64
    for shift in (-0.001, 0, 0.001):  # less than half a level
        floats = ImageSet("floats", (images.pixels() + shift).clamp(0, 1))
        assert (images.hashes() == floats.hashes()).all()
    assert len(set(images.hashes().tolist())) == 20


SHARES = {"fit": 0.6, "calibrate": 0.1, "test": 0.3}


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), order=st.randoms(use_true_random=False))
def test_a_split_is_complete_disjoint_and_blind_to_order(seed, order):
    images = image_set(200, seed=seed)
    places = list(range(200))
    order.shuffle(places)
    parts = split(images, **SHARES)
    shuffled = split(images.take(torch.tensor(places)), **SHARES)
    hashes = {name: set(part.hashes().tolist()) for name, part in parts.items()}
    assert sum(len(p) for p in parts.values()) == 200
    assert set.union(*hashes.values()) == set(images.hashes().tolist())
    assert sum(len(h) for h in hashes.values()) == 200
    assert hashes == {name: set(part.hashes().tolist()) for name, part in shuffled.items()}


def test_adding_images_to_a_split_moves_no_other_image():
    few = image_set(100, seed=1)
    more = ImageSet("more", torch.cat([image_set(300, seed=2).images, few.images]))
    before, after = split(few, **SHARES), split(more, **SHARES)
    for name in SHARES:
        assert set(before[name].hashes().tolist()) <= set(after[name].hashes().tolist())


def test_equal_images_land_on_the_same_side():
    images = image_set(100, seed=3)
    twice = ImageSet("twice", torch.cat([images.images, images.images.flip(0)]))
    for name, part in split(twice, **SHARES).items():
        counts = np.unique(part.hashes(), return_counts=True)[1]
        assert (counts == 2).all(), name


def test_the_parts_of_a_split_have_about_their_shares_and_their_own_labels():
    images = image_set(5000, shape=(1, 2, 8), labels=torch.arange(5000))
    parts = split(images, **SHARES)
    for name, share in SHARES.items():
        part = parts[name]
        assert abs(len(part) / 5000 - share) < 0.03
        assert torch.equal(part.images, images.images[part.labels])
        assert part.name == f"some/{name}"


def test_a_split_is_the_same_tomorrow():
    images = ImageSet("s", torch.arange(16, dtype=torch.uint8).view(16, 1, 1, 1))
    first = split(images, a=0.5, b=0.5)["a"]
    assert first.images.flatten().tolist() == [0, 1, 2, 4, 5, 7, 8, 12, 15]


@pytest.mark.parametrize(
    "shares", [{}, {"a": 0.5}, {"a": 0.7, "b": 0.7}, {"a": 1.5, "b": -0.5}, {"a": float("nan")}]
)
def test_shares_that_are_no_division_are_refused(shares):
    refused(InputError, "expected shares", split, image_set(), **shares)


def test_a_part_without_images_is_refused_by_name():
    refused(DataError, "got none in", split, image_set(1), fit=0.5, test=0.5)


@pytest.mark.parametrize("shape", [(3, 9, 7), (1, 8, 8), (3, 4, 4)])
def test_images_are_converted_alike_whether_few_or_all_at_once(shape, monkeypatch):
    for stored in (image_set(shape=(3, 4, 4)), image_set(shape=(1, 4, 4))):
        monkeypatch.setattr(base, "QUICKEST", 2**21)
        whole = stored.to_shape(shape)
        monkeypatch.setattr(base, "QUICKEST", 1)
        assert at_once(shape) == 1
        assert whole.shape == shape
        assert torch.equal(stored.to_shape(shape).images, whole.images)


def test_large_images_come_in_small_batches():
    assert at_once((1, 28, 28)) == 256
    assert at_once((3, 32, 32), most=128) == 128
    assert at_once((3, 224, 224)) == 13
    assert at_once((3, 4000, 4000)) == 1


# reading ahead


def test_reading_ahead_changes_neither_items_nor_order():
    assert list(prefetched(iter(range(5)))) == list(range(5))
    assert list(prefetched(iter(()))) == []


def test_the_next_item_is_made_while_one_is_worked_on():
    second = threading.Event()

    def items():
        yield 1
        second.set()
        yield 2

    read = prefetched(items())
    assert next(read) == 1
    assert second.wait(timeout=10)  # though nobody has asked for it
    assert next(read) == 2


def test_what_fails_while_reading_ahead_is_raised_in_its_turn():
    def items():
        yield 1
        raise ValueError("torn")

    read = prefetched(items())
    assert next(read) == 1
    refused(ValueError, "torn", next, read)
