"""`rood watch`: JSON lines on stdout, alarms, file names from stdin."""

import json

import pytest
from PIL import Image
from typer.testing import CliRunner

import rood
from rood import data
from rood.cli import app
from rood.detectors import Energy
from rood.guard import Guard

SHAPE = (1, 28, 28)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    root = tmp_path_factory.mktemp("watch")
    detector = Energy(rood.zoo.load("digits-ce"))
    known = data.load("procedural:strokes,n=120", shape=SHAPE)
    Guard.calibrated(detector, known.batches(60)).save(root / "guard")
    for name, kind in (("inside", "strokes"), ("outside", "noise")):
        (root / name).mkdir()
        images = data.load(f"procedural:{kind},n=20,seed=7", shape=SHAPE)
        for i, one in enumerate(images.pixels()):
            pixels = (255 * one).round().byte().permute(1, 2, 0).numpy()
            Image.fromarray(pixels.squeeze()).save(root / name / f"{i:02}.png")
    return root


def run(*arguments, **options):
    found = CliRunner().invoke(app, ["watch", *map(str, arguments)], **options)
    assert found.exit_code == 0, found.output
    return found


def test_a_folder_is_watched_with_one_json_object_per_image(world):
    found = run(world / "guard", world / "outside", "--json", "--arl", "100")
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert len(rows) == 20
    assert rows[0].keys() == {"file", "number", "score", "accept", "p", "evidence", "alarm"}
    assert any(r["alarm"] for r in rows)
    assert "in 20 images" in found.stderr


def test_without_json_only_alarms_are_printed(world):
    assert "alarm at image" in run(world / "guard", world / "outside", "--arl", "100").stdout
    quiet = run(world / "guard", world / "inside", "--arl", "1000").stdout
    assert quiet.startswith("0 alarms in 20 images")
    assert "with probability 0.02 at most" in quiet


def test_file_names_come_from_stdin(world):
    names = "".join(f"{world / 'inside' / f'{i:02}.png'}\n" for i in (3, 1))
    rows = run(world / "guard", "-", "--json", input=names).stdout.splitlines()
    assert [json.loads(r)["file"][-6:] for r in rows] == ["03.png", "01.png"]


def test_the_page_shows_the_evidence_of_the_stream(world, tmp_path):
    page = tmp_path / "stream.html"
    found = run(
        world / "guard", world / "outside", "--arl", "100", "--page", page, "--json", "--seed", "1"
    )
    alarms = sum(json.loads(line)["alarm"] for line in found.stdout.splitlines())
    assert f"page: {page}" in found.stderr
    text = page.read_text(encoding="utf-8")
    assert f"<h1>{alarms} alarm{'s' * (alarms != 1)} in 20 images</h1>" in text
