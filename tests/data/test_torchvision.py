"""Data sets of torchvision, in place of which a fake one stands here."""

import errno
import io
import sys
from types import ModuleType

import numpy as np
import pytest
from PIL import Image
from small_pictures import picture, same

from rood import data
from rood.errors import CapabilityError, DataError, InputError, UnknownNameError


class Fake:
    """What rood uses of a data set of torchvision."""

    classes = ("cat", "dog")

    def __init__(self, root, train=True, download=False):
        if train:
            raise RuntimeError("Dataset not found")
        self.asked = (root, download)

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return Image.fromarray(picture(i)), i % 2


@pytest.fixture
def torchvision(monkeypatch):
    package, module = ModuleType("torchvision"), ModuleType("torchvision.datasets")
    module.FAKE = Fake
    package.datasets = module
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.datasets", module)


def test_a_data_set_of_torchvision_is_read(torchvision, tmp_path):
    images = data.load(f"torchvision:FAKE?root={tmp_path}&train=false", limit=4)
    assert same(images, (0, 2, 4, 6))
    assert images.labels.tolist() == [0, 0, 0, 0]
    assert images.classes == ("cat", "dog")
    assert images.notes == ("used 4 of 8 images, evenly spaced",)


def damaged(i):
    """Pictures 2 to 5, each unreadable in its own way."""
    content = io.BytesIO()
    Image.fromarray(picture(i)).save(content, format="PNG")
    if i == 2:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "b/2.png")
    if i == 3:
        return Image.open(io.BytesIO(b"no picture")), 1
    if i == 4:
        raise IndexError
    return Image.open(io.BytesIO(content.getvalue()[:60])), 1  # opened, and no more


def test_what_torchvision_cannot_read_is_named_or_skipped(torchvision, tmp_path, monkeypatch):
    whole = Fake.__getitem__
    bad = [2]
    monkeypatch.setattr(Fake, "__getitem__", lambda s, i: damaged(i) if i in bad else whole(s, i))
    spec = f"torchvision:FAKE?root={tmp_path}&train=false"
    for i, says in (
        (2, "cannot be read: .*No such file or directory: 'b/2.png'"),
        (3, "cannot be read: cannot identify image file .*"),
        (4, "cannot be read: IndexError"),
        (5, "cannot be read: .*"),
    ):
        bad[:] = [i]
        with pytest.raises(DataError, match=f"^image {i} of FAKE {says}: repair .* --skip-bad$"):
            data.load(spec)
    bad[:] = [2, 3, 4, 5]
    images = data.load(spec, skip_bad=True)
    assert same(images, (0, 1, 6, 7))
    assert images.labels.tolist() == [0, 1, 0, 1]
    assert images.files == ("00000000", "00000001", "00000006", "00000007")
    (note,) = images.notes
    assert note.startswith("4 of 8 files could not be read and were skipped: '00000002', ")
    monkeypatch.setattr(Fake, "__getitem__", lambda *_: damaged(2))
    with pytest.raises(DataError, match="expected images in 'FAKE', got 8 of 8 files could not be"):
        data.load(spec, skip_bad=True)


def test_what_is_no_picture_at_all_is_not_skipped(torchvision, monkeypatch):
    """Every image of such a set is so, and leaving them out would hide why."""
    monkeypatch.setattr(Fake, "__getitem__", lambda *_: (np.zeros(3), 0))
    with pytest.raises(DataError, match="expected an image at image 0 of FAKE, got ndarray"):
        data.load("torchvision:FAKE?root=x&train=false", skip_bad=True)


def test_what_torchvision_cannot_open_is_said_in_one_sentence(torchvision, monkeypatch):
    for spec, error, says in (
        ("FAKE?root=x&train=true", DataError, "cannot open FAKE in 'x': Dataset not found"),
        ("FAKE", InputError, r"expected FAKE\?root=FOLDER"),
        ("FAKES?root=x", UnknownNameError, "did you mean 'FAKE'"),
        ("FAKE?root", InputError, r"expected NAME\?key=value"),
    ):
        with pytest.raises(error, match=says):
            data.load(f"torchvision:{spec}")
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    with pytest.raises(CapabilityError, match="needs torchvision, which does not import here"):
        data.load("torchvision:FAKE?root=x")
