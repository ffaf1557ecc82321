"""An archive gives its images, or is refused with the reason."""

import json
import os
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from refusals import RNG, refused

from rood import data
from rood.data import ImageSet
from rood.errors import DataError


def archive(path, **arrays):
    np.savez(path, **arrays)
    return str(path)


@pytest.mark.parametrize("layout", ["nhw", "nhwc", "nchw"])
def test_every_layout_of_an_archive_gives_the_same_images(tmp_path, layout):
    c = 1 if layout == "nhw" else 3
    pixels = RNG.integers(0, 256, (5, c, 6, 7), dtype=np.uint8)
    stored = {"nhw": pixels[:, 0], "nhwc": pixels.transpose(0, 2, 3, 1), "nchw": pixels}[layout]
    images = data.load(
        archive(tmp_path / "a.npz", images=stored, labels=np.arange(5, dtype=np.uint8))
    )
    assert (images.images.numpy() == pixels).all()
    assert (images.name, images.labels.tolist()) == ("a", [0, 1, 2, 3, 4])
    assert images.labels.dtype == torch.int64


def test_an_archive_of_floats_is_kept_and_may_have_class_names(tmp_path):
    pixels = RNG.random((4, 5, 5))
    path = archive(
        tmp_path / "a.npz", images=pixels, labels=np.array([0, 1, 1, 0]), classes=["x", "y"]
    )
    images = data.load(f"npz:{path}")
    assert images.classes == ("x", "y")
    np.testing.assert_array_equal(images.pixels()[:, 0], pixels.astype(np.float32))
    assert data.load(archive(tmp_path / "b.npz", images=pixels)).labels is None


def test_an_archive_is_thinned_and_converted_and_says_so(tmp_path):
    path = archive(tmp_path / "a.npz", images=np.full((10, 8, 8), 77, np.uint8))
    images = data.load(path, limit=5, shape=(3, 4, 6))
    assert images.images.shape == (5, 3, 4, 6)
    assert (images.images == 77).all()
    assert images.notes == (
        "used 5 of 10 images, evenly spaced",
        "converted from 8x8 grey to 4x6 colour",
    )


def test_converting_sizes_and_colours_agrees_with_pillow():
    pixels = RNG.integers(0, 256, (1, 3, 24, 20), dtype=np.uint8)
    small = ImageSet("s", torch.from_numpy(pixels)).to_shape((1, 9, 10)).images[0, 0]
    image = Image.fromarray(pixels[0].transpose(1, 2, 0)).convert("L")
    expected = np.asarray(image.resize((10, 9), Image.Resampling.BILINEAR)).astype(int)
    assert np.abs(small.numpy() - expected).max() <= 1


IMAGES = np.zeros((2, 4, 4), np.uint8)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (dict(pictures=IMAGES), "expected an array 'images' in"),
        (dict(pictures=IMAGES), "got 'pictures'"),
        (dict(images=np.zeros((4, 4), np.uint8)), "got (4, 4)"),
        (dict(images=np.zeros((0, 4, 4), np.uint8)), "got (0, 4, 4)"),
        (dict(images=np.zeros((2, 4, 4, 4), np.uint8)), "no axis is channels"),
        (dict(images=np.zeros((2, 3, 4, 3), np.uint8)), "could be channels"),
        (dict(images=np.zeros((2, 4, 4), np.int64)), "got int64: convert"),
        (dict(images=np.full((2, 4, 4), 255.0)), "got [255, 255]: divide 8-bit values"),
        (dict(images=np.full((2, 4, 4), np.nan)), "expected pixels in [0, 1]"),
        (dict(images=np.array([object(), object()])), "contains Python objects, which rood never"),
        (dict(images=IMAGES, labels=np.arange(3)), "expected 2 whole-number `labels`"),
        (dict(images=IMAGES, labels=np.zeros(2)), "got float64 of shape (2,)"),
        (dict(images=IMAGES, labels=np.array([0, -7])), "got -7 to 0"),
        (dict(images=IMAGES, labels=np.array([0, 2]), classes=["x", "y"]), "from 0 to 1"),
        (dict(images=IMAGES, meta="{"), "is not JSON"),
        (dict(images=IMAGES, meta="[1]"), "expected a JSON object"),
        (dict(images=IMAGES, meta='{"encoding": "mp4"}'), "unknown encoding 'mp4'"),
        (dict(images=IMAGES, meta='{"encoding": []}'), "unknown encoding []"),
        (dict(images=IMAGES, meta='{"n": 3}'), "expected 3 images"),
        (dict(meta='{"encoding": "webp-lossless"}'), "does not match its `meta`"),
    ],
)
def test_archives_without_usable_images_are_refused_with_the_reason(tmp_path, arrays, words):
    refused(DataError, words, data.load, archive(tmp_path / "a.npz", **arrays))


def test_files_that_are_no_archive_are_refused(tmp_path):
    refused(DataError, "does not exist", data.load, f"npz:{tmp_path}/a.npz")
    refused(DataError, "does not exist", data.load, f"{tmp_path}/a.npz")
    refused(DataError, "is a folder", data.load, f"npz:{tmp_path}")
    path = tmp_path / "a.npz"
    for content in (b"", b"hello", b"PK\x03\x04 cut"):
        path.write_bytes(content)
        refused(DataError, "is damaged or not an .npz file", data.load, str(path))
    np.save(tmp_path / "a.npy", IMAGES)
    refused(DataError, "is a single array", data.load, f"npz:{tmp_path}/a.npy")
    archive(path, images=RNG.integers(0, 256, (9, 9, 9), dtype=np.uint8))
    whole = bytearray(path.read_bytes())
    whole[300:310] = bytes(10)
    path.write_bytes(whole)
    refused(DataError, "cannot be read: the file is damaged", data.load, str(path))


def encoded(pixels, kind, **options):
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return np.frombuffer(buffer.getvalue(), np.uint8)


def test_contact_sheets_are_cut_into_their_tiles(tmp_path):
    tiles = RNG.integers(0, 256, (11, 4, 5, 3), dtype=np.uint8)
    sheets = {}
    for i, start in enumerate((0, 6)):  # rows of three tiles, the last one of each set not full
        part = tiles[start : start + 6]
        sheet = np.zeros((2 * 4, 3 * 5, 3), np.uint8)
        for j, tile in enumerate(part):
            row, column = divmod(j, 3)
            sheet[row * 4 : row * 4 + 4, column * 5 : column * 5 + 5] = tile
        sheets[f"webp_00{i}"] = encoded(sheet, "WEBP", lossless=True)
    meta = dict(encoding="webp-lossless", shape=[4, 5, 3], n=11, cols=3, per_sheet=6)
    meta["class_names"] = ["even", "odd"]
    labels = np.arange(11) % 2
    images = data.load(archive(tmp_path / "a.npz", meta=json.dumps(meta), labels=labels, **sheets))
    assert (images.images.numpy() == tiles.transpose(0, 3, 1, 2)).all()
    assert images.classes == ("even", "odd")
    short = archive(tmp_path / "b.npz", meta=json.dumps(meta), webp_000=sheets["webp_000"])
    refused(DataError, "expected 11 images in", data.load, short)
    meta["cols"] = 4
    wrong = archive(tmp_path / "c.npz", meta=json.dumps(meta), **sheets)
    refused(DataError, "does not match its `meta`", data.load, wrong)


def test_joined_jpeg_files_are_cut_at_their_offsets(tmp_path):
    files = [encoded(np.full((8, 8, 3), level, np.uint8), "JPEG") for level in (0, 100, 255)]
    offsets = np.cumsum([0, *(len(f) for f in files)])
    meta = json.dumps(dict(encoding="jpeg-concat", shape=[8, 8, 3], n=3))
    blob = np.concatenate(files)
    images = data.load(archive(tmp_path / "a.npz", jpeg=blob, offsets=offsets, meta=meta))
    assert images.images.float().mean(dim=(1, 2, 3)).round().tolist() == [0, 100, 255]
    wrong = archive(tmp_path / "b.npz", jpeg=blob, offsets=offsets[:-1], meta=meta)
    refused(DataError, "do not cut `jpeg` into files", data.load, wrong)
    cut = offsets.copy()
    cut[1] -= 50
    wrong = archive(tmp_path / "c.npz", jpeg=blob, offsets=cut, meta=meta)
    refused(DataError, "image 0 in", data.load, wrong)


@pytest.mark.skipif(
    "ROOD_DATA" not in os.environ, reason="ROOD_DATA names no folder of real images"
)
@pytest.mark.parametrize(
    ("name", "n", "shape", "classes", "each"),
    [
        ("cifar10_test", 10_000, (3, 32, 32), 10, 1_000),
        ("dtd10_32", 1_200, (3, 32, 32), 10, None),
        ("gtsrb_train8k", 7_842, (3, 32, 32), 0, None),
        ("mnist_test", 10_000, (1, 28, 28), 0, None),
        ("chestxray_test64", 624, (1, 64, 64), 2, None),
        ("imagenet250_sample224", 250, (3, 224, 224), 1000, None),
    ],
)
def test_real_packs_are_read(name, n, shape, classes, each):
    images = data.load(f"npz:{os.environ['ROOD_DATA']}/{name}.npz")
    assert (len(images), images.shape, len(images.classes)) == (n, shape, classes)
    assert images.images.float().std() > 30
    # neighbouring pixels agree in pictures, and do not where tiles were cut wrongly
    x = images.pixels()[:200]
    assert (x[..., 1:] - x[..., :-1]).abs().mean() < 0.6 * (x - x.flip(0)).abs().mean()
    if each:
        assert torch.bincount(images.labels).tolist() == [each] * classes


def test_an_array_of_an_archive_names_the_group_of_each_image(tmp_path):
    pixels = RNG.integers(0, 256, (4, 5, 5), dtype=np.uint8)
    path = archive(tmp_path / "a.npz", images=pixels, video=[7, 7, 9, 9], clip=["a", "", "b", "b"])
    assert data.load(path, groups="video").groups == ("7", "7", "9", "9")
    assert data.load(f"share:0-1@{path}", groups="video").groups == ("7", "7", "9", "9")
    refused(DataError, "expected an array 'track'", data.load, path, groups="track")
    refused(DataError, "expected a group for each of the 4", data.load, path, groups="clip")
    refused(DataError, "as 'images' in", data.load, path, groups="images")
    refused(DataError, "expected files in folders to group", data.load, path, groups="folder")
    says = "expected a column or array 'video' to group the images of 'stripes' by, got none"
    refused(DataError, says, data.load, "procedural:stripes,n=9", groups="video")


def test_an_array_that_grows_is_refused_before_it_is_read(tmp_path):
    shape = ((1 << 30) // 64 + 1, 8, 8)
    head = BytesIO()
    about = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, about)
    with (
        zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("images.npy", "w", force_zip64=True) as member,
    ):
        member.write(head.getvalue())
        for _ in range(256):
            member.write(bytes(1 << 22))
        member.write(bytes(64))
    refused(
        DataError, "if it is yours, save it with numpy.savez", data.load, str(tmp_path / "a.npz")
    )


@pytest.mark.parametrize("shape", ["(10**9, 4, 4)", "(-2, 4, 4)", "(1000000, 4, 4)"])
def test_a_shape_that_the_array_does_not_have_is_refused(tmp_path, shape):
    path = Path(archive(tmp_path / "a.npz", images=IMAGES))
    with zipfile.ZipFile(path) as old:
        content = old.read("images.npy")
    head = content[10:128].decode().replace("(2, 4, 4)", shape)
    with zipfile.ZipFile(path, "w") as new:
        new.writestr(
            "images.npy", content[:10] + head.rstrip().ljust(117).encode() + b"\n" + content[128:]
        )
    refused(DataError, "the file is damaged", data.load, str(path))


@pytest.mark.parametrize(
    "values", [{"shape": [10**9, 10**9, 3]}, {"shape": [0, 4]}, {"shape": "x"}, {"n": None}]
)
def test_a_packed_archive_whose_meta_is_odd_is_refused(tmp_path, values):
    meta = {"encoding": "webp-lossless", "shape": [4, 4], "cols": 1, "per_sheet": 1, "n": 1}
    path = archive(
        tmp_path / "a.npz", meta=json.dumps(meta | values), webp_000=np.zeros(4, np.uint8)
    )
    refused(DataError, "does not match its `meta`", data.load, path)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.npz")
    refused(DataError, "expected an .npz file", data.load, str(tmp_path / "a.npz"))
