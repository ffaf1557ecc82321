"""Decoded images are kept in ROOD_CACHE, and read again when anything has changed."""

import errno
import json

import pytest
from small_pictures import picture, pixels, save

from rood import data
from rood.errors import DataError


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


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("labels", [1, 0, 1, 0, 1, 0]), ("classes", ["b", "a"]), ("name", "other")),
        *(("files", 7), ("labels", ["x"]), ("labels", [10**30]), ("notes", None)),
    ],
)
def test_a_changed_card_is_read_past_and_repaired(folder, cache, key, value):
    first = data.load(str(folder))
    (card,) = cache.glob("*.json")
    whole = card.read_text()
    card.write_text(json.dumps(json.loads(whole) | {key: value}))
    again = data.load(str(folder))
    assert (again.labels.tolist(), again.classes) == (first.labels.tolist(), first.classes)
    assert card.read_text() == whole


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


@pytest.mark.parametrize("header", [b"{'descr': '|u1', (((", b"{'descr': '|u1', 'x': '''", b"\x00"])
def test_a_header_that_python_cannot_parse_is_read_past(folder, cache, header):
    first = data.load(str(folder))
    (array,) = cache.glob("*.npy")
    whole = array.read_bytes()
    array.write_bytes(whole[:10] + header + whole[10 + len(header) :])
    assert data.load(str(folder)).fingerprint() == first.fingerprint()
    assert array.read_bytes() == whole


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
    def full(*_, **__):
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
