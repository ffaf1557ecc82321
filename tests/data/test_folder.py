"""A folder becomes an image set with everything declared, or is refused."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from refusals import COLOUR, GREY, refused, save

from rood import data
from rood.errors import DataError, InputError


def class_folder(root, **counts):
    for name, n in counts.items():
        for i in range(n):
            save(root / name / f"{i}.png", np.full((4, 4, 3), 10 * i, np.uint8))
    return str(root)


def test_sub_folders_are_classes_in_alphabetical_order(tmp_path):
    save(tmp_path / "cat" / "deep" / "er" / "z.PNG")
    save(tmp_path / "cat" / "a.png")
    save(tmp_path / "ant" / "b.bmp")
    save(tmp_path / "cat" / ".hidden.png")
    save(tmp_path / ".cache" / "x.png")
    (tmp_path / "cat" / "readme.txt").write_text("no image")
    images = data.load(f"folder:{tmp_path}")
    assert images.classes == ("ant", "cat")
    assert images.labels.tolist() == [0, 1, 1]
    assert images.files == ("ant/b.bmp", "cat/a.png", "cat/deep/er/z.PNG")
    assert images.notes == ()
    assert (images.images.numpy() == COLOUR.transpose(2, 0, 1)).all()


def test_a_flat_folder_has_no_labels(tmp_path):
    save(tmp_path / "b.png", GREY)
    save(tmp_path / "a.png", 255 - GREY)
    (tmp_path / "empty").mkdir()
    images = data.load(str(tmp_path))
    assert images.labels is None
    assert images.classes == ()
    assert images.shape == (1, 6, 5)
    assert (images.images[1, 0].numpy() == GREY).all()


def test_uneven_sizes_are_resized_as_pillow_does_and_declared(tmp_path):
    save(tmp_path / "a.png", np.tile(GREY, (2, 2)))
    save(tmp_path / "b.png", GREY)
    save(tmp_path / "c.png", np.tile(GREY, (3, 1)))
    images = data.load(str(tmp_path))
    assert images.shape == (1, 12, 10)
    assert images.notes == ("2 images were resized from 3 sizes to 12x10 (height x width)",)
    small = data.load(str(tmp_path), shape=(1, 4, 4))
    assert small.notes == ("3 images were resized from 3 sizes to 4x4 (height x width)",)
    expected = Image.fromarray(GREY).resize((4, 4), Image.Resampling.BILINEAR)
    assert (small.images[1, 0].numpy() == np.asarray(expected)).all()


def test_colour_and_grey_are_converted_to_what_the_network_takes_and_declared(tmp_path):
    save(tmp_path / "a.png", GREY)
    save(tmp_path / "b.png")
    mixed = data.load(str(tmp_path))
    assert mixed.shape[0] == 3
    assert mixed.notes == ("1 image was converted from grey to colour",)
    assert (mixed.images[0].numpy() == GREY).all()
    grey = data.load(str(tmp_path), shape=(1, 6, 5))
    assert grey.notes == ("1 image was converted from colour to grey",)
    assert (grey.images[0, 0].numpy() == GREY).all()


def test_transparency_and_animation_are_declared(tmp_path):
    save(tmp_path / "a.png", np.zeros((4, 4, 4), np.uint8))
    frames = [Image.new("RGB", (4, 4), c) for c in ("red", "blue")]
    frames[0].save(tmp_path / "b.gif", save_all=True, append_images=frames[1:])
    assert data.load(str(tmp_path)).notes == (
        "1 image was laid over white where transparent",
        "1 image was cut to the first of several frames",
    )


def test_a_limit_is_spread_over_the_classes_and_declared(tmp_path):
    images = data.load(class_folder(tmp_path, a=6, b=6, c=6), limit=6)
    assert images.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert images.notes == ("used 6 of 18 images, evenly spaced in order of their names",)
    refused(InputError, "at least 1 image, got 0", data.load, str(tmp_path), limit=0)


def test_bad_files_are_refused_by_name_or_skipped_counted_and_named(tmp_path):
    class_folder(tmp_path, a=3, b=3)
    (tmp_path / "a" / "broken.png").write_bytes(b"\x89PNG nothing")
    (tmp_path / "b" / "zero.jpg").write_bytes(b"")
    refused(DataError, "broken.png' is damaged", data.load, str(tmp_path))
    refused(DataError, "use --skip-bad", data.load, str(tmp_path))
    images = data.load(str(tmp_path), skip_bad=True)
    assert images.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert images.notes == (
        "2 of 8 files could not be read and were skipped: 'a/broken.png', 'b/zero.jpg'",
    )


def test_many_skipped_files_are_counted_and_the_first_named(tmp_path):
    save(tmp_path / "good.png")
    for i in range(7):
        (tmp_path / f"{i}.png").write_bytes(b"x")
    (note,) = data.load(str(tmp_path), skip_bad=True).notes
    assert note.startswith("7 of 8 files could not be read")
    assert note.endswith("'4.png' and 2 more")


def test_skipping_may_not_empty_a_folder_or_a_class(tmp_path):
    for name in ("flat/a.png", "classes/x/a.png"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(b"x")
    load = data.load
    refused(DataError, "got 1 of 1 files could not be", load, str(tmp_path / "flat"), skip_bad=True)
    save(tmp_path / "classes" / "y" / "b.png")
    refused(
        DataError, "no file of 'x' could be read", load, str(tmp_path / "classes"), skip_bad=True
    )


def test_folders_that_are_no_image_set_are_refused_with_the_reason(tmp_path):
    load = data.load
    refused(DataError, "does not exist", load, f"folder:{tmp_path}/missing")
    refused(DataError, "does not exist", load, f"{tmp_path}/missing")
    refused(DataError, "is a file", load, str(save(tmp_path / "one" / "a.png")))
    (tmp_path / "none").mkdir()
    refused(DataError, "got none (looked for bmp gif", load, str(tmp_path / "none"))
    words = "expected at least two class folders in"
    refused(DataError, words, load, class_folder(tmp_path / "lone", only=2))
    refused(DataError, "got one ('only'): put the images", load, str(tmp_path / "lone"))
    class_folder(tmp_path / "gap", a=1, b=1)
    (tmp_path / "gap" / "void").mkdir()
    refused(DataError, "got none in 'void'", load, str(tmp_path / "gap"))
    save(tmp_path / "gap" / "stray.png")
    refused(DataError, "got both ('stray.png' and folder 'a')", load, str(tmp_path / "gap"))
    wrong = "(1 or 3, height, width), got (2, 4, 4)"
    refused(InputError, wrong, load, f"folder:{tmp_path}/one", shape=(2, 4, 4))


def test_hostile_names_stay_on_one_line_and_inside_quotes(tmp_path):
    hostile = "a\n<script>alert(1)</script>\u202e\x1b[31m.png".replace("/", "_")
    (tmp_path / hostile).write_bytes(b"x")
    save(tmp_path / "good.png")
    refused(DataError, r"a\n<script>", data.load, str(tmp_path))
    (note,) = data.load(str(tmp_path), skip_bad=True).notes
    assert note.isprintable()
    assert repr(hostile) in note


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse names that are not UTF-8")
def test_names_that_are_not_utf8_can_still_be_written(tmp_path):
    for name in (b"c\xfe", b"c\xff"):
        folder = os.fsencode(tmp_path) + b"/" + name
        os.mkdir(folder)
        save(Path(os.fsdecode(folder)) / "a.png")
    images = data.load(str(tmp_path))
    assert len(set(images.classes)) == 2
    json.dumps([images.classes, images.files], ensure_ascii=False).encode("utf-8")


def test_a_folder_that_links_to_itself_ends(tmp_path):
    class_folder(tmp_path, a=1, b=1)
    (tmp_path / "a" / "again").symlink_to(tmp_path)
    assert len(data.load(str(tmp_path))) == 2


def test_reading_a_folder_twice_gives_the_same_set(tmp_path):
    class_folder(tmp_path, a=4, b=3)
    assert data.load(str(tmp_path)).fingerprint() == data.load(str(tmp_path)).fingerprint()


def test_the_parent_folder_of_each_image_is_its_group(tmp_path):
    for clip in ("cat/1", "cat/2", "dog/1"):
        for i in range(2):
            save(tmp_path / clip / f"{i}.png", GREY)
    images = data.load(f"folder:{tmp_path}", groups="folder")
    assert images.groups == ("cat/1",) * 2 + ("cat/2",) * 2 + ("dog/1",) * 2
    assert data.load(f"folder:{tmp_path}").groups == ()
