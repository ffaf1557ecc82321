"""Images in every form that Python code has them in."""

import sys

import numpy as np
import pytest
import torch
from PIL import Image
from refusals import refused
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from rood import data
from rood.data.base import ImageSet
from rood.data.given import batches_of, image_set
from rood.errors import DataError, InputError

N, SHAPE = 12, (3, 6, 5)
BYTES = torch.randint(0, 256, (N, *SHAPE), generator=torch.Generator().manual_seed(0)).byte()
FLOATS = BYTES.float() / 255
LABELS = torch.arange(N) % 3
HWC = BYTES.permute(0, 2, 3, 1)


class Pictures(Dataset):
    """PIL images, as torchvision gives them without a transform."""

    def __len__(self):
        return N

    def __getitem__(self, i):
        return Image.fromarray(HWC[i].numpy()), int(LABELS[i])


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(FLOATS, LABELS, strict=True))


class Wild(Pictures):
    """With a random transform."""

    def __getitem__(self, i):
        return torch.rand(SHAPE), 0


class Items(Pictures):
    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def rows(i):
    return {"image": BYTES[i], "label": LABELS[i]}


TENSORS = TensorDataset(FLOATS, LABELS)
SHUFFLED = DataLoader(TENSORS, batch_size=5, shuffle=True, drop_last=True)
FORMS = {  # the same twelve images, with labels or without
    "image set": (ImageSet("x", BYTES, LABELS), True),
    "float tensor": (FLOATS, False),
    "8-bit tensor": (BYTES, False),
    "channels last": (HWC, False),
    "pair": ((FLOATS, LABELS), True),
    "pair with a list": ((BYTES, LABELS.tolist()), True),
    "array": (BYTES.numpy(), False),
    "array, channels last": (HWC.numpy(), False),
    "float64 array": (HWC.numpy() / 255, False),
    "pair of arrays": ((HWC.numpy(), LABELS.numpy().astype(np.uint8)), True),
    "gradients": (FLOATS.clone().requires_grad_(), False),
    "tensors": (TENSORS, True),
    "tensors without labels": (TensorDataset(FLOATS), False),
    "subset": (Subset(TENSORS, range(N)), True),
    "PIL images": (Pictures(), True),
    "dictionaries": (Items(*map(rows, range(N))), True),
    "arrays": (Items(*((HWC[i].numpy(), np.int64(LABELS[i])) for i in range(N))), True),
    "stream": (Stream(), True),
    "loader": (DataLoader(TENSORS, batch_size=5), True),
    "loader of a stream": (DataLoader(Stream(), batch_size=5), True),
    "loader that shuffles": (SHUFFLED, True),
    "loader without labels": (DataLoader(TensorDataset(BYTES), batch_size=4), False),
    "loader of dictionaries": (DataLoader(Items(*map(rows, range(N))), batch_size=5), True),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_images(form):
    before = torch.random.get_rng_state()
    given, labelled = FORMS[form]
    images = image_set(given, "mine")
    assert torch.equal((images.pixels() * 255).round().byte(), BYTES)
    assert (images.labels.tolist() if labelled else images.labels) == (
        LABELS.tolist() if labelled else None
    )
    assert images.name == ("x" if form == "image set" else "mine")
    assert torch.equal(torch.random.get_rng_state(), before)  # loaders draw from it


def test_grey_images_need_no_channel_axis():
    grey = BYTES[:, 0]
    for form in (
        grey,
        grey.numpy(),
        Items(*grey),
        Items(*(Image.fromarray(g.numpy()) for g in grey)),
    ):
        assert torch.equal(image_set(form, "grey").images, grey[:, None])


def test_a_path_and_a_spec_are_read_as_by_the_command(tmp_path):
    np.savez(tmp_path / "x.npz", images=BYTES.numpy(), labels=LABELS.numpy())
    for spec in (tmp_path / "x.npz", str(tmp_path / "x.npz"), f"npz:{tmp_path / 'x.npz'}"):
        images = image_set(spec, "ignored", limit=4)
        assert torch.equal(images.images, BYTES[::3])
        assert images.name == "x"
    assert torch.equal(data.load(tmp_path / "x.npz").images, BYTES)


@pytest.mark.parametrize("form", ["pair", "tensors", "PIL images", "loader", "dictionaries"])
def test_limit_and_shape_are_applied(form):
    images = image_set(FORMS[form][0], "mine", limit=4, shape=(1, 3, 3))
    assert (len(images), images.shape) == (4, (1, 3, 3))
    assert images.labels.tolist() == LABELS[::3].tolist()
    assert any("used 4 of 12 images, evenly spaced" in note for note in images.notes)
    assert any("to 3x3 grey" in note or "to 3x3 (height" in note for note in images.notes)


def test_a_stream_is_read_no_further_than_the_limit():
    class Endless(IterableDataset):
        def __iter__(self):
            while True:
                yield FLOATS[0], 1

    assert len(image_set(Endless(), "mine", limit=3)) == 3
    assert len(image_set(DataLoader(Endless(), batch_size=2), "mine", limit=3)) == 3


@pytest.mark.filterwarnings("ignore")
def test_a_data_set_of_hugging_face_is_taken_as_it_is(monkeypatch):
    datasets = pytest.importorskip("datasets", reason="needs datasets: rood[hub]")
    kinds = {"img": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])}
    pictures = [Image.fromarray(x.numpy()) for x in HWC]
    table = {"img": pictures, "label": LABELS.tolist()}
    found = datasets.Dataset.from_dict(table, features=datasets.Features(kinds))
    for form in (found, found.with_format("torch"), found.to_iterable_dataset()):
        images = image_set(form, "mine")
        assert torch.equal(images.images, BYTES)
        assert (images.labels.tolist(), images.classes) == (LABELS.tolist(), ("a", "b", "c"))
    assert torch.equal(image_set(found, "mine", limit=4).images, BYTES[::3])
    both = datasets.DatasetDict({"test": found})
    refused(InputError, "got DatasetDict: name one split", image_set, both, "mine")


def test_the_library_datasets_is_not_imported_to_find_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert len(image_set(FLOATS, "mine")) == N


UNLIKE = torch.rand(3, 6, 5)
WRONG = {
    "nothing": (None, "expected images for mine, as a tensor", "got NoneType"),
    "a number": (5, "got int"),
    "a list of tensors": ([FLOATS[0]], "got list: torch.stack(...) makes one tensor of many"),
    "a picture": (Image.new("RGB", (4, 4)), "got Image: give a data set or a folder"),
    "one image": (FLOATS[0], "a batch of images", "give images[None]"),
    "a vector": (FLOATS[:, 0, 0, 0], "expected images of shape (n, h, w)"),
    "four channels": (torch.rand(5, 4, 6, 6), "no axis is channels"),
    "an ambiguous array": (np.zeros((5, 3, 6, 3)), "both the second and the last axis"),
    "whole numbers": (BYTES.long(), "expected uint8 or float", "got int64: convert"),
    "0 to 255 as floats": (BYTES.float(), "pixels in [0, 1] in 'mine'", "divide 8-bit values"),
    "normalised": (FLOATS - 0.5, "pixels in [0, 1]", "do not normalise"),
    "NaN": (FLOATS / 0, "pixels in [0, 1]", "nan"),
    "ragged": (np.array([np.zeros(2), np.zeros(3)], object), "got an array of object"),
    "no image": (FLOATS[:0].numpy(), "expected images in 'mine', got none"),
    "three in a tuple": ((FLOATS, LABELS, LABELS), "got a tuple of 3", "a list"),
    "too few labels": ((FLOATS, LABELS[1:]), "got 12 images and 11 labels"),
    "one-hot labels": ((FLOATS, torch.eye(12)), "argmax of one-hot labels"),
    "labels as words": ((FLOATS, ["cat"] * N), "one class number per image"),
    "two sets in a tuple": ((FLOATS, FLOATS), "several image sets go into a list"),
    "an empty data set": (Items(), "got an empty data set"),
    "items of two sizes": (Items(FLOATS[0], UNLIKE[:, 1:]), "images of one size in 'mine'"),
    "a random transform": (Wild(), "the same image at every reading", "RandomCrop"),
    "a loader of those": (DataLoader(Wild()), "the same image at every reading"),
    "items as words": (Items(("cat", 1)), "got str"),
    "a word as a label": (Items((FLOATS[0], "cat")), "a class number as the label", "'cat'"),
    "other keys": (Items({"foto": FLOATS[0]}), "among the keys of image 0", "got foto"),
    "batches of something else": (DataLoader(Items(*"abc")), "expected images for batch 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_image_set_is_refused_in_one_sentence(case):
    given, *words = WRONG[case]
    with pytest.raises((InputError, DataError)) as caught:
        image_set(given, "mine")
    said = str(caught.value)
    assert all(word in said for word in words), said
    assert "\n" not in said
    assert not said.endswith(".")


def test_batches_come_from_every_form():
    cpu = torch.device("cpu")
    pairs = [(FLOATS[:7], LABELS[:7]), (FLOATS[7:], LABELS[7:])]
    loader = DataLoader(TENSORS, batch_size=7)
    for given in (TENSORS, pairs, loader, (FLOATS, LABELS), FORMS["image set"][0]):
        batches = batches_of(given, cpu)
        for _ in range(2):  # a detector may go through them twice
            x, y = (torch.cat(part) for part in zip(*batches, strict=True))
            assert torch.equal(x, FLOATS)
            assert torch.equal(y, LABELS)
    once = batches_of(iter(pairs), cpu)
    assert len(list(once)) == 2
    with pytest.raises(InputError, match="iterated twice, got a list_iterator that is used up"):
        list(once)
    assert [y.tolist() for _, y in batches_of([FLOATS[:2]], cpu)] == [[-1, -1]]
    for wrong in ([LABELS.tolist()], [5]):
        with pytest.raises(InputError, match="batch 0 of the training images"):
            list(batches_of(wrong, cpu))
    refused(InputError, "images for training images", batches_of, 5, cpu)
