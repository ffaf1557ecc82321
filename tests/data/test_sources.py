"""Image lists, the Hugging Face hub, torchvision, and the cache of decoded images."""

import errno
import io
import json
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

from rood import data
from rood.errors import CapabilityError, DataError, InputError, UnknownNameError


def picture(i, size=(6, 5)):
    rng = np.random.default_rng(i)
    return rng.integers(0, 256, (*size, 3), dtype=np.uint8)


def save(path, i, size=(6, 5)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(i, size)).save(path)
    return path


def pixels(images):
    return [i.permute(1, 2, 0).numpy() for i in images.images]


def same(images, numbers):
    return all((a == picture(i)).all() for a, i in zip(pixels(images), numbers, strict=True))


# image lists


@pytest.fixture
def openood(tmp_path):
    """A folder as OpenOOD 1.5 leaves it: lists, and images beside them."""
    for i in range(6):
        save(tmp_path / "images_classic" / "cifar10" / "test" / f"c {i}.png", i)
    lists = tmp_path / "benchmark_imglist" / "cifar10"
    lists.mkdir(parents=True)
    lines = [f"cifar10/test/c {i}.png {i % 3}" for i in range(6)]
    (lists / "test_cifar10.txt").write_text("\n".join(lines) + "\n\n")
    outside = [f"cifar10/test/c {i}.png -1" for i in range(6)]
    (lists / "test_svhn.txt").write_text("\n".join(outside))
    return tmp_path


def test_an_image_list_of_openood_is_read_where_it_lies(openood):
    images = data.load(f"imglist:{openood}/benchmark_imglist/cifar10/test_cifar10.txt")
    assert same(images, range(6))
    assert images.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert (images.name, images.files[0]) == ("test_cifar10", "cifar10/test/c 0.png")
    outside = data.load(f"imglist:{openood}/benchmark_imglist/cifar10/test_svhn.txt", limit=3)
    assert outside.labels is None
    assert same(outside, (0, 2, 4))
    assert outside.notes == ("used 3 of 6 images, evenly spaced in order of their names",)


def test_another_root_is_named_after_the_list(openood, tmp_path):
    (tmp_path / "own.txt").write_text("c 1.png 0\nc 3.png 1\n")
    images = data.load(f"imglist:{tmp_path}/own.txt@{openood}/images_classic/cifar10/test")
    assert same(images, (1, 3))


def test_images_of_a_list_are_resized_and_declared(openood):
    list_file = openood / "benchmark_imglist" / "cifar10" / "test_cifar10.txt"
    save(openood / "images_classic" / "cifar10" / "test" / "c 2.png", 2, (9, 9))
    images = data.load(f"imglist:{list_file}")
    assert images.shape == (3, 6, 5)
    assert images.notes == ("1 image was resized from 2 sizes to 6x5 (height x width)",)


def test_lists_that_cannot_be_followed_are_refused_by_line(openood):
    list_file = openood / "benchmark_imglist" / "cifar10" / "test_cifar10.txt"
    for content, says in (
        ("cifar10/test/c 0.png zero", "a path and a whole number in line 1"),
        ("cifar10/test/c 0.png 0\n../secret.png 0", "a path below the root .* in line 2"),
        ("/etc/x.png 0", "a path below the root"),
        ("cifar10/test/c 0.png -2", "a label from -1 in line 1"),
        ("", "got an empty file"),
        ("cifar10/test/c 0.png 0\ngone.png 1", r"got none called 'gone.png' \(1 missing\)"),
    ):
        list_file.write_text(content)
        with pytest.raises(DataError, match=says):
            data.load(f"imglist:{list_file}")
    with pytest.raises(DataError, match="does not exist"):
        data.load("imglist:nowhere.txt")


def test_damaged_files_of_a_list_are_named_or_skipped(openood):
    list_file = openood / "benchmark_imglist" / "cifar10" / "test_cifar10.txt"
    (openood / "images_classic" / "cifar10" / "test" / "c 3.png").write_bytes(b"\x89PNG no")
    with pytest.raises(DataError, match=r"c 3.png' is damaged .* use --skip-bad"):
        data.load(f"imglist:{list_file}")
    images = data.load(f"imglist:{list_file}", skip_bad=True)
    assert same(images, (0, 1, 2, 4, 5))
    assert "'cifar10/test/c 3.png'" in images.notes[0]


# the cache


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("ROOD_CACHE", str(folder))
    return folder


@pytest.fixture
def folder(tmp_path):
    for i in range(6):
        save(tmp_path / "set" / "ab"[i % 2] / f"{i}.png", i)
    return tmp_path / "set"


def decoded(monkeypatch):
    """Counts the files that are decoded from now on."""
    from rood.data import _reading

    seen, own = [], _reading.decode
    monkeypatch.setattr(_reading, "decode", lambda *a, **k: seen.append(a) or own(*a, **k))
    return seen


def test_a_folder_is_decoded_once(folder, cache, monkeypatch):
    seen = decoded(monkeypatch)
    first = data.load(str(folder), limit=4)
    again = data.load(str(folder), limit=4)
    assert len(seen) == 4
    assert again.fingerprint() == first.fingerprint()
    for name in ("name", "classes", "notes", "files"):
        assert getattr(again, name) == getattr(first, name)
    assert len(list(cache.glob("*.npy"))) == 1
    data.load(str(folder), shape=(3, 4, 4))
    assert len(list(cache.glob("*.npy"))) == 2


def test_a_changed_folder_is_read_again(folder, cache, monkeypatch):
    data.load(str(folder))
    save(folder / "a" / "0.png", 77)
    assert (pixels(data.load(str(folder)))[0] == picture(77)).all()


def test_a_damaged_cache_is_read_past_and_repaired(folder, cache, monkeypatch):
    first = data.load(str(folder))
    (file,) = cache.glob("*.npy")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert data.load(str(folder)).fingerprint() == first.fingerprint()
    file.write_bytes(b"")
    assert data.load(str(folder)).fingerprint() == first.fingerprint()
    seen = decoded(monkeypatch)
    data.load(str(folder))
    assert not seen
    file.with_suffix(".json").write_text("{")
    assert data.load(str(folder)).fingerprint() == first.fingerprint()


def test_cached_pixels_can_be_written_to_without_harm(folder, cache):
    data.load(str(folder))
    again = data.load(str(folder))
    before = again.fingerprint()
    again.images.zero_()
    assert data.load(str(folder)).fingerprint() == before


def test_nothing_is_kept_where_nobody_asked_for_it(folder, tmp_path, monkeypatch):
    monkeypatch.delenv("ROOD_CACHE", raising=False)
    before = sorted(tmp_path.rglob("*"))
    data.load(str(folder))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_cache_that_cannot_be_written_is_said_and_leaves_no_part_of_a_file(
    folder, cache, monkeypatch
):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("rood.data.cache.os.replace", full)
    with pytest.raises(
        DataError, match=r"no space left on device\): set ROOD_CACHE to another folder"
    ):
        data.load(str(folder))
    assert not list(cache.iterdir())
    monkeypatch.setenv("ROOD_CACHE", str(folder / "a" / "0.png"))
    with pytest.raises(DataError, match="cannot write to the cache"):
        data.load(str(folder))


def test_two_processes_may_keep_the_same_images_at_once(folder, cache, monkeypatch):
    """The other one is a step behind and its files are half written."""
    whole = data.load(str(folder)).fingerprint()
    kept = {p.name: p.read_bytes() for p in cache.iterdir()}
    for file in list(cache.iterdir()):
        file.with_name(f"{file.stem}.1.part{file.suffix}").write_bytes(file.read_bytes()[:10])
        file.unlink()
    assert data.load(str(folder)).fingerprint() == whole
    assert {n: (cache / n).read_bytes() for n in kept} == kept
    assert len(list(cache.glob("*.1.part.*"))) == 2  # which is the other's


# torchvision


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


# the Hugging Face hub


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(CapabilityError, match=r"needs datasets: pip install 'rood\[hub\]'"):
        data.load("hf:some/thing")
    with pytest.raises(UnknownNameError, match="no option is called 'spilt': did you mean 'split'"):
        data.load("hf:some/thing?spilt=test")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Eight images with labels in a folder as the hub has it, and as save_to_disk has it."""
    datasets = pytest.importorskip("datasets", reason="needs datasets: rood[hub]")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    lines = []
    for i in range(8):
        save(tmp_path / "hub" / "test" / f"{i}.png", i)
        lines.append(json.dumps({"file_name": f"{i}.png", "label": i % 2}))
    (tmp_path / "hub" / "test" / "metadata.jsonl").write_text("\n".join(lines))
    features = datasets.Features(
        {"img": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    )
    rows = {"img": [str(tmp_path / "hub" / "test" / f"{i}.png") for i in range(8)]}
    rows["label"] = [i % 2 for i in range(8)]
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "disk"))
    return tmp_path


@pytest.mark.filterwarnings("ignore")
def test_a_saved_data_set_is_read_by_the_types_of_its_columns(hub):
    images = data.load(f"hf:{hub}/disk")
    assert same(images, range(8))
    assert images.labels.tolist() == [0, 1] * 4
    assert images.classes == ("cat", "dog")
    some = data.load(f"hf:{hub}/disk", limit=4)
    assert same(some, (0, 2, 4, 6))
    assert some.notes == ("used 4 of 8 images, evenly spaced",)
    with pytest.raises(DataError, match=r"expected one column of images .* got img, label"):
        data.load(f"hf:{hub}/disk?image=picture")
    with pytest.raises(DataError, match="expected a column 'kind'"):
        data.load(f"hf:{hub}/disk?label=kind")


@pytest.mark.filterwarnings("ignore")
def test_a_row_without_an_image_can_be_skipped(hub):
    datasets = pytest.importorskip("datasets", reason="needs datasets: rood[hub]")
    rows = {"img": [str(hub / "hub" / "test" / "0.png"), None]}
    features = datasets.Features({"img": datasets.Image()})
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(hub / "gap"))
    with pytest.raises(DataError, match=r"image 1 of .* is empty .* use --skip-bad"):
        data.load(f"hf:{hub}/gap")
    images = data.load(f"hf:{hub}/gap", skip_bad=True)
    assert same(images, [0])
    assert "1 of 2 files could not be read" in images.notes[0]


@pytest.mark.filterwarnings("ignore")
def test_a_folder_as_the_hub_has_it_is_streamed(hub):
    images = data.load(f"hf:{hub}/hub?split=test&label=label")
    assert sorted(images.labels.tolist()) == [0] * 4 + [1] * 4
    found = {a.tobytes() for a in pixels(images)}
    assert found == {picture(i).tobytes() for i in range(8)}
    some = data.load(f"hf:{hub}/hub", limit=3)
    assert len(some) == 3
    assert some.notes[0].startswith("used at most 3 images, the first of a seeded shuffle")
    assert torch.equal(some.images, data.load(f"hf:{hub}/hub", limit=3).images)


@pytest.mark.filterwarnings("ignore")
def test_splits_and_names_that_are_not_there_are_refused(hub):
    with pytest.raises(DataError, match="a data set with a split 'nothing' at"):
        data.load(f"hf:{hub}/hub?split=nothing")
    with pytest.raises(DataError, match="since rood is offline, got none"):
        data.load("hf:nobody/nothing")
