"""Streams of files: folders by name, lines in their order, unreadable files."""

import json
import math

import pytest
from PIL import Image
from toy_guard import guarded

from rood.detectors import Energy
from rood.errors import DataError
from rood.guard import Monitor
from rood.guard.watching import Watch, files_of
from rood.testing.world import blobs, toy_world


@pytest.fixture(scope="module")
def guard():
    return guarded(Energy(toy_world().model))


@pytest.fixture
def folder(tmp_path):
    for i, x in enumerate(blobs(4, seed=3)[0]):
        pixels = (255 * x).round().byte().permute(1, 2, 0).numpy()
        Image.fromarray(pixels.squeeze()).save(tmp_path / f"{i}.png")
    return tmp_path


def test_files_are_judged_in_their_order_as_json_knows_it(guard, folder):
    readings = list(Watch(Monitor(guard)).run(files_of(str(folder), ())))
    assert [r["file"] for r in readings] == [str(folder / f"{i}.png") for i in range(4)]
    assert [r["number"] for r in readings] == [1, 2, 3, 4]
    assert json.loads(json.dumps(readings)) == readings
    assert all(math.isfinite(r["score"]) for r in readings)
    lines = [f"{folder / '2.png'}\n", "\n", f"{folder / '0.png'}\r\n"]
    turned = list(Watch(Monitor(guard)).run(files_of("-", lines)))
    assert [r["score"] for r in turned] == [readings[2]["score"], readings[0]["score"]]


def test_an_unreadable_file_is_named_or_skipped(guard, folder):
    (folder / "1.png").write_bytes(b"no image")
    files = files_of(f"folder:{folder}", ())
    with pytest.raises(DataError, match=r"1\.png.*--skip-bad"):
        list(Watch(Monitor(guard)).run(files))
    watch = Watch(Monitor(guard), skip_bad=True)
    assert len(list(watch.run(files))) == 3
    assert watch.skipped == [str(folder / "1.png")]
