"""Bad images in a folder and bad folders to write to: said in one line, nothing lost."""

import errno
import fcntl
import json
import os

import numpy as np
import pytest
from bad_input import class_folder, corrupt, flat_folder, invoke, refused
from PIL import Image
from small_audit import eight_bit
from typer.testing import CliRunner

from rood.cli import app
from rood.testing.world import blobs, stripes


def test_skip_bad_goes_on_and_counts(here):
    result = invoke(here, *corrupt(here), "--skip-bad", "--eps", "none")
    assert result.exit_code == 0
    note = "1 of 8 files could not be read and was skipped: '3.png'"
    manifest = json.loads((here / "out" / "manifest.json").read_text())
    assert manifest["data"]["pictures"]["notes"] == [note]
    assert manifest["data"]["pictures"]["n"] == 7
    assert f"note: pictures: {note}\n" in result.stderr
    assert "1 of 8 files could not be read" in (here / "out" / "report.html").read_text()


def test_skipped_training_images_are_counted_too(here):
    x, y = blobs(60, seed=1)
    folder = class_folder(here / "train", x, y)
    (folder / "a" / "000.png").write_bytes(b"no picture")
    result = invoke(here, "--train", str(folder), "--skip-bad", "--eps", "none")
    assert result.exit_code == 0
    manifest = json.loads((here / "out" / "manifest.json").read_text())
    assert "1 of 60 files could not be read" in json.dumps(manifest["split"])


def test_a_folder_of_other_settings_is_left_alone(here):
    assert invoke(here, "--eps", "none").exit_code == 0
    before = (here / "out" / "rows.jsonl").read_bytes()
    refused(invoke(here, "--eps", "none", "--seed", "4"), "other settings", "(seed differ)")
    refused(invoke(here, "--eps", "0.1"), "(threats differ)")
    assert (here / "out" / "rows.jsonl").read_bytes() == before


def test_a_folder_with_a_broken_manifest_is_left_alone(here):
    (here / "out").mkdir()
    for text in ("{", "[]", "{}"):
        (here / "out" / "manifest.json").write_text(text)
        refused(invoke(here), "cannot read", "manifest.json")
        assert (here / "out" / "manifest.json").read_text() == text


def test_two_runs_on_one_folder(here):
    (here / "out").mkdir()
    with (here / "out" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused(invoke(here), "another run is writing to", "choose another folder")
    assert {p.name for p in (here / "out").iterdir()} == {".lock"}


@pytest.mark.parametrize("victim", ["manifest.json", "scores", "rows.jsonl", "report.html"])
def test_a_full_disk_is_said_and_what_was_written_stays_whole(here, monkeypatch, victim):
    def full(path):
        if victim in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    whole_fsync = os.fsync

    def fsync(descriptor):  # the file is half there when the disk says no
        full(os.readlink(f"/proc/self/fd/{descriptor}"))
        return whole_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    few = ["--detectors", "msp", "--eps", "0.05", "--limit", "20"]
    refused(invoke(here, *few), "no space left on device", "out")
    monkeypatch.undo()
    os.chdir(here)
    assert not list((here / "out" / "scores").rglob("*.part"))
    assert invoke(here, *few).exit_code == 0  # and with room again it goes on
    assert invoke(here, *few, "--out", str(here / "fresh")).exit_code == 0
    rows = [(here / f / "rows.jsonl").read_bytes() for f in ("out", "fresh")]
    assert rows[0] == rows[1]


def test_hostile_names_of_files_and_sets_are_just_names(here):
    names = ("<script>x</script>", "[bold]", "a\nb")
    x, y = blobs(240, seed=1)
    inside = class_folder(here / "in", x, y, names)
    outside = flat_folder(here / "o[/]\x1b[31m")
    (outside / "0.png").rename(outside / "[bold] \n\x1b[2J.png")
    result = invoke(here, "--inside", str(inside), "--outside", str(outside))
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    assert "<script>x" not in (here / "out" / "report.html").read_text()
    (outside / "bad\nline.png").write_bytes(b"x")
    refused(invoke(here, "--outside", str(outside), "--out", str(here / "b")), "bad\\nline.png")
    nameless = CliRunner().invoke(
        app, ["audit", "--model", "a\nb\x1b[31m", "--inside", "x", "--outside", "x"]
    )
    refused(nameless, "no trained network")
    assert "\x1b" not in nameless.stderr


def picture(kind, path):
    rgb = Image.fromarray(eight_bit(stripes(1, seed=1))[0].transpose(1, 2, 0))
    if kind == "RGBA":
        rgb.convert("RGBA").save(path.with_suffix(".png"))
    elif kind == "16-bit":
        Image.fromarray(np.full((8, 8), 40000, np.uint16)).save(path.with_suffix(".png"))
    elif kind == "CMYK":
        rgb.convert("CMYK").save(path.with_suffix(".jpg"))
    elif kind == "EXIF":
        exif = Image.Exif()
        exif[0x0112] = 6
        rgb.save(path.with_suffix(".jpg"), exif=exif)
    elif kind == "float":
        Image.fromarray(np.zeros((8, 8), np.float32)).save(path.with_suffix(".tif"))
    elif kind == "bomb":
        Image.new("1", (20000, 20000)).save(path.with_suffix(".png"))


@pytest.mark.parametrize("kind", ["RGBA", "16-bit", "CMYK", "EXIF"])
def test_unusual_images_are_converted(here, kind):
    picture(kind, flat_folder(here / "pictures") / "unusual")
    result = invoke(here, "--outside", str(here / "pictures"), "--eps", "none")
    assert result.exit_code == 0
    manifest = json.loads((here / "out" / "manifest.json").read_text())
    assert manifest["data"]["pictures"]["n"] == 9


@pytest.mark.parametrize("kind", ["float", "bomb"])
def test_images_that_cannot_be_read_right_are_refused(here, kind):
    picture(kind, flat_folder(here / "pictures") / "unusual")
    refused(invoke(here, "--outside", str(here / "pictures")), "unusual", "--skip-bad")


FEW = ("--detectors", "msp", "--eps", "none", "--limit", "20")


@pytest.mark.parametrize(
    "name",
    [
        ".lock",
        "rows.jsonl",
        "manifest.json.part",
        "report.html",
        "scores",
        "units",
    ],
)
def test_an_audit_writes_through_no_link(here, name):
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("precious")
    whole = name in ("scores", "units")
    (here / "out").mkdir()
    (here / "out" / name).symlink_to(elsewhere if whole else elsewhere / "precious")
    refused(invoke(here, *FEW), "a link stands there", "remove the link")
    assert [p.read_text() for p in elsewhere.iterdir()] == ["precious"]


def test_a_folder_of_somebody_else_is_left_alone(here):
    (here / "out" / "images").mkdir(parents=True)
    (here / "out" / "holiday.jpg").write_text("precious")
    for out in ("/", str(here), str(here / "out")):
        refused(invoke(here, *FEW, "--out", out), "an empty folder or results of rood", "choose")
    assert {p.name for p in (here / "out").iterdir()} == {"holiday.jpg", "images"}


def test_notes_of_the_user_in_a_folder_of_results_do_no_harm(here):
    assert invoke(here, *FEW).exit_code == 0
    (here / "out" / "notes.txt").write_text("mine")
    assert invoke(here, *FEW).exit_code == 0
    assert (here / "out" / "notes.txt").read_text() == "mine"
