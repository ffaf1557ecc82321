"""`rood attack`: what is on disk is within the budget, scored as saved, and continued."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from bad_input import class_folder, flat_folder, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from small_audit import eight_bit
from typer.testing import CliRunner

import rood
from rood import data
from rood.attacks import PGD
from rood.cli import app
from rood.detectors import KNN, MSP
from rood.errors import InputError, RoodWarning
from rood.evaluation.crafting import COLUMNS, ScoresTable, craft, plan_crafting
from rood.evaluation.settings import AuditSettings
from rood.models import checkpoint
from rood.seeds import generator
from rood.testing.world import blobs, stripes
from rood.threat import L2, Linf, parse, to_8_bit

FEW = ("--eps", "0.05", "--attack", "pgd", "--steps", "3", "--limit", "12", "--batch-size", "5")


def command(*more):
    what = ["--model", "net.safetensors", "--inside", "inside.npz", "--images", "stripes.npz"]
    return ["attack", *what, *FEW, "--device", "cpu", "--out", "out", *more]


def invoke(*more):
    return CliRunner().invoke(app, command(*more))


def done(*more):
    result = invoke(*more)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def rows(folder="out"):
    with Path(folder, "scores.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def original(limit=12):
    return data.load("npz:stripes.npz", limit=limit).pixels()


def snapshot(folder):
    """Every file but the lock and the manifest, by name."""
    found = (p for p in Path(folder).rglob("*") if p.is_file())
    kept = (p for p in found if p.name not in (".lock", "manifest.json"))
    return {str(p.relative_to(folder)): p.read_bytes() for p in kept}


@pytest.mark.parametrize("eps", ["linf:8/255", "linf:0.05", "l2:0.3", "l2:1"])
def test_png_files_are_within_the_budget_and_scored_as_saved(here, eps):
    done("--eps", eps)
    threat, x = parse(eps), original()
    saved = data.load("folder:out/images").pixels()
    size = threat.size(saved.double() - x.double())
    assert (size <= threat.eps * (1 + 1e-6)).all()
    assert (size > 0.5 * threat.eps).all()
    detector = MSP(checkpoint.load("net.safetensors"))
    table = rows()
    for column, scores in (
        ("score_before", detector.score(x)),
        ("score_saved", detector.score(saved)),
    ):
        np.testing.assert_allclose([float(r[column]) for r in table], scores, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose([float(r["norm_saved"]) for r in table], size, rtol=1e-5)
    for r in table:
        assert float(r["score_saved"]) <= float(r["score_before"])
        assert float(r["score_after"]) < float(r["score_before"])


def test_npz_holds_the_float_images_with_their_labels(here):
    done("--format", "npz", "--direction", "look_out", "--images", "inside.npz", "--eps", "l2:0.4")
    saved = data.load("npz:out/attacked.npz")
    table = rows()
    assert {p.name for p in Path("out").iterdir()} >= {"attacked.npz", "scores.csv"}
    assert not Path("out", "images").exists()
    assert saved.images.dtype == torch.float32
    assert [int(r["label"]) for r in table] == saved.labels.tolist()
    assert {r["file"] for r in table} == {"attacked.npz"}
    scores = MSP(checkpoint.load("net.safetensors")).score(saved.pixels())
    np.testing.assert_allclose([float(r["score_saved"]) for r in table], scores, rtol=1e-4)
    for r in table:
        assert r["score_after"] == r["score_saved"]
        assert float(r["score_after"]) > float(r["score_before"])
        assert 0.3 < float(r["norm_saved"]) <= 0.4 + 1e-6


def test_looking_out_takes_images_that_taught_nothing(here):
    settings = AuditSettings(
        models=("net.safetensors",),
        inside="npz:inside.npz",
        detectors=("msp",),
        threats=("0.05",),
        limit=None,
    )
    for images in (None, "npz:inside.npz"):
        crafting = plan_crafting(settings, images, "look_out", "png")
        assert 0 < len(crafting.images) < 120
        assert crafting.images.name == "inside/test"


def test_without_a_choice_the_worst_of_several_attacks_is_taken(here):
    few = ["--model", "net.safetensors", "--inside", "inside.npz", "--images", "stripes.npz"]
    more = ["--eps", "0.05", "--limit", "6", "--tier", "quick", "--device", "cpu", "--out", "worst"]
    result = CliRunner().invoke(app, ["attack", *few, *more])
    assert result.exit_code == 0, (result.output, result.exception)
    done("--limit", "6")
    manifest = json.loads(Path("worst", "manifest.json").read_text())
    assert manifest["settings"]["attack"]["class"] == "WorstOf"
    assert manifest["settings"]["attack"]["tier"] == "quick"
    for strong, weak in zip(rows("worst"), rows("out"), strict=True):
        assert float(strong["score_saved"]) <= float(weak["score_saved"]) + 0.01


def test_the_table_says_what_happened(here):
    result = done()
    table = rows()
    assert tuple(table[0]) == COLUMNS
    assert [r["image"] for r in table] == [str(i) for i in range(12)]
    assert [r["file"] for r in table] == [f"images/{i:05}.png" for i in range(12)]
    threshold = json.loads(Path("out", "manifest.json").read_text())["threshold"]
    for r in table:
        assert r["accepted_before"] == ("yes" if float(r["score_before"]) <= threshold else "no")
        assert r["accepted_after"] == ("yes" if float(r["score_saved"]) <= threshold else "no")
        assert (r["source"], r["label"]) == ("", "")
    told = ScoresTable(Path("out", "scores.csv")).summary()
    shifts = [float(r["score_saved"]) - float(r["score_before"]) for r in table]
    assert told.n == 12
    assert told.shift == pytest.approx(np.median(shifts))
    assert told.accepted_after.value == np.mean([r["accepted_after"] == "yes" for r in table])
    assert f"{100 * told.accepted_after.value:.1f} %" in result.stdout
    assert "scores: out/scores.csv" in result.stdout
    assert "\x1b" not in result.output
    assert result.stderr == "note: stripes: used 12 of 30 images, evenly spaced\n"


def test_images_of_a_folder_keep_their_names_and_labels(here):
    x, y = blobs(9, seed=1)
    class_folder(here / "in", x, y, ("a", "=b", "c\nd"))
    done("--images", "folder:in", "--direction", "look_out")
    found = {(r["source"], r["label"]) for r in rows()}
    assert ("'=b/001.png", "0") in found  # in alphabetical order
    assert ("c\nd/002.png", "2") in found
    before = snapshot("out")
    done("--images", "folder:in", "--direction", "look_out")
    assert snapshot("out") == before


@pytest.mark.parametrize("kind", ["png", "npz"])
@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_run_that_was_stopped_goes_on_and_ends_the_same(here, kind, stop, monkeypatch):
    done("--format", kind, "--out", "whole")
    work = prepared(kind)
    for _ in islice(work.run(Path("out")), stop):
        pass
    assert len(rows()) == 5 * (stop - 1)
    done("--format", kind)
    assert snapshot("out") == snapshot("whole")


def prepared(kind):
    changes = {
        "threats": ("0.05",),
        "attack": "pgd",
        "attack_options": {"steps": 3},
        "limit": 12,
        "batch_size": 5,
    }
    what = {"models": ("net.safetensors",), "inside": "inside.npz", "detectors": ("msp",)}
    settings = AuditSettings(**what, **changes, device="cpu")
    return plan_crafting(settings, "stripes.npz", "look_in", kind)


def test_what_is_there_is_not_made_again(here, monkeypatch):
    done()
    monkeypatch.setattr(PGD, "climb", lambda *_: pytest.fail("attacked again"))
    done()


def test_rows_and_files_that_were_lost_are_made_again(here):
    done()
    whole = snapshot("out")
    table = Path("out", "scores.csv")
    for cut in (3, 200, 500):
        table.write_bytes(table.read_bytes()[:-cut])
        done()
        assert snapshot("out") == whole
    Path("out", "images", "00007.png").unlink()
    done()
    assert snapshot("out") == whole


def damaged_image(here):
    path = Path("out", "images", "00003.png")
    Image.fromarray(255 - np.asarray(Image.open(path))).save(path)


def damaged_score(here):
    path = Path("out", "scores.csv")
    lines = path.read_text().splitlines(keepends=True)
    column = lines[0].split(",").index("score_before")
    cells = lines[8].split(",")
    cells[column] = "0.125"
    path.write_text("".join([*lines[:8], ",".join(cells), *lines[9:]]))


def no_checksums(here):
    """The table as rood 0.1 wrote it."""
    path = Path("out", "scores.csv")
    lines = path.read_text().splitlines()
    path.write_text("".join(line.rpartition(",")[0] + "\n" for line in lines))


@pytest.mark.parametrize("change", [damaged_image, damaged_score, no_checksums])
def test_what_a_continued_attack_keeps_is_compared_with_its_checksums(here, change):
    done()
    whole = snapshot("out")
    change(here)
    assert snapshot("out") != whole
    result = done()
    assert snapshot("out") == whole
    assert ("note: rows or images of out are incomplete" in result.stderr) != (
        change is no_checksums
    )


def test_damaged_images_of_an_archive_are_made_again(here):
    done("--format", "npz")
    whole = snapshot("out")
    path = Path("out", "attacked.npz")
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays["images"][5] = 0
    for change in (lambda: np.savez(path, **arrays), lambda: path.write_bytes(b"no archive")):
        change()
        assert "are made again" in done("--format", "npz").stderr
        assert snapshot("out") == whole


@pytest.mark.slow
def test_a_killed_process_goes_on(here):
    """SIGKILL as soon as the first rows are there; Ctrl-C is the same with a friendly word."""
    # many steps: on a busy machine the signal may come seconds late
    more = ("--limit", "30", "--steps", "150", "--batch-size", "2")
    code = "from rood.cli import app; app(prog_name='rood')"
    source = str(Path(rood.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    for number, status in ((signal.SIGKILL, -9), (signal.SIGINT, 130)):
        start = lines("out")
        process = subprocess.Popen(
            [sys.executable, "-c", code, *command(*more)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        while process.poll() is None and lines("out") < start + 4:
            time.sleep(0.01)
        process.send_signal(number)
        _, said = process.communicate()
        assert process.returncode == status
        assert start + 4 <= lines("out") < 31
    assert said == "stopped: the same command continues from here\n"
    done(*more)
    done(*more, "--out", "whole")
    assert snapshot("out") == snapshot("whole")


def lines(folder):
    path = Path(folder, "scores.csv")
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_other_settings_are_refused_and_nothing_is_touched(here):
    done()
    before = snapshot("out")
    for option, value, word in (
        ("--seed", "3", "seed"),
        ("--eps", "0.04", "threats"),
        ("--direction", "look_out", "direction"),
        ("--format", "npz", "format"),
        ("--steps", "4", "attack.steps"),
        ("--images", "grey.npz", "data.images"),
        ("--detector", "energy", "detectors"),
    ):
        refused(invoke(option, value), "other settings", word)
    assert snapshot("out") == before


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--direction", "up"), ("no direction is called 'up'",)),
        (("--format", "jpg"), ("no format is called 'jpg'",)),
        (("--detector", "all"), ("no detector is called 'all'",)),
        (("--detector", "mps"), ("did you mean 'msp'?",)),
        (("--attack", "pdg"), ("did you mean 'pgd'?",)),
        (("--attack", "random_search"), ("no setting is called 'steps'",)),
        (("--eps", "8"), ("did you mean 8/255?",)),
        (("--eps", "1/255,2/255"), ("expected a threat such as",)),
        (("--images", "nowhere/"), ("does not exist",)),
        (("--model", "nothing"), ("no trained network",)),
        (("--limit", "-1"), ("at least 1 image",)),
        (("--batch-size", "0"), ("batch size >= 1",)),
        (("--device", "toaster"), ("expected a device",)),
        (("--out", "net.safetensors"), ("cannot write to",)),
    ],
)
def test_bad_input_is_one_sentence(here, more, words):
    refused(invoke(*more), *words)
    assert not Path("out").exists()


def test_a_table_of_somebody_else_is_left_alone(here):
    Path("out").mkdir()
    Path("out", "scores.csv").write_text("name,score\nme,10\n")
    refused(invoke(), "another table", "choose another folder")
    assert Path("out", "scores.csv").read_text() == "name,score\nme,10\n"


def test_a_broken_picture_is_said_or_skipped(here):
    folder = flat_folder(here / "pictures")
    (folder / "3.png").write_bytes(b"no picture")
    refused(invoke("--images", "pictures"), "3.png", "--skip-bad")
    result = done("--images", "pictures", "--skip-bad")
    assert "1 of 8 files could not be read" in result.stderr
    assert [r["source"] for r in rows()] == [f"{i}.png" for i in range(8) if i != 3]


def test_float_images_off_the_grid_need_npz_and_the_folder_stays_free(here):
    np.savez("float.npz", images=stripes(12, seed=6).numpy())
    refused(invoke("--images", "float.npz"), "whole levels", "--format npz")
    done("--images", "float.npz", "--format", "npz")
    assert len(rows()) == 12


def test_help_names_the_options():
    said = CliRunner().invoke(app, ["attack", "--help"]).output
    assert all(o in said for o in ("--direction", "--format", "--images", "--eps"))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    threat=st.one_of(
        st.floats(0, 0.2).map(Linf),
        st.floats(0, 2).map(L2),
        st.integers(0, 16).map(lambda k: Linf(k / 255)),
    ),
    scale=st.floats(0.01, 3),
)
def test_rounding_stays_inside(seed, threat, scale):
    g = generator(seed, "rounding")
    x = torch.randint(0, 256, (3, 1, 6, 6), generator=g).float() / 255
    x_adv = x + scale * max(threat.eps, 0.01) * torch.randn(x.shape, generator=g)
    found = to_8_bit(x_adv, x, threat)
    levels = found * 255
    assert (levels - levels.round()).abs().max() < 1e-4
    assert 0 <= found.min() <= found.max() <= 1
    assert (threat.size(found.double() - x.double()) <= threat.eps * (1 + 1e-6) + 1e-7).all()


def test_rounding_takes_the_nearest_level_that_is_allowed():
    x = torch.full((1, 1, 1, 5), 100 / 255)
    delta = torch.tensor([1.7, -1.7, 0.6, 0.4, -0.6]) / 255
    near = to_8_bit(x + delta, x, Linf(1.7 / 255)) * 255 - 100
    torch.testing.assert_close(near.flatten(), torch.tensor([1.0, -1, 1, 0, -1]), atol=1e-4, rtol=0)
    whole = to_8_bit(x + 3 * delta, x, Linf(2 / 255)) * 255 - 100
    torch.testing.assert_close(
        whole.flatten(), torch.tensor([2.0, -2, 2, 1, -2]), atol=1e-4, rtol=0
    )


def test_rounding_to_l2_gives_up_as_little_as_it_must():
    """Small perturbations of many pixels: rounding each towards 0 would leave nothing of them."""
    g = generator(0, "l2")
    x = torch.randint(20, 230, (4, 3, 32, 32), generator=g).float() / 255
    for eps in (0.1, 0.3, 1.0):
        threat = L2(eps)
        x_adv = threat.project(x + torch.randn(x.shape, generator=g), x)
        found = to_8_bit(x_adv, x, threat)
        size = threat.size(found.double() - x.double())
        assert (size <= eps * (1 + 1e-6)).all()
        assert (size > 0.97 * eps).all()


def test_rounding_does_not_depend_on_the_batch():
    g = generator(1, "batch")
    x = torch.randint(0, 256, (5, 1, 8, 8), generator=g).float() / 255
    x_adv = (x + 0.03 * torch.randn(x.shape, generator=g)).clamp(0, 1)
    together = to_8_bit(x_adv, x, L2(0.1))
    alone = [to_8_bit(a, b, L2(0.1)) for a, b in zip(x_adv.split(1), x.split(1), strict=True)]
    assert torch.equal(together, torch.cat(alone))


def test_rounding_refuses_images_between_the_levels():
    with pytest.raises(InputError, match="whole levels"):
        to_8_bit(torch.full((1, 1, 2, 2), 0.5), torch.full((1, 1, 2, 2), 0.5), Linf(0.1))


def test_craft_never_makes_it_worse_and_depends_on_no_batch(world):
    detector = KNN(world.model, k=5).fit(world.train)
    x = torch.from_numpy(eight_bit(world.outside[:9])).float() / 255
    threat = Linf(2 / 255)
    made = craft(detector, x, threat, attack=PGD(steps=3), eight_bit=True)
    assert threat.contains(made.images, x).all()
    assert (made.rounded <= made.before).all()
    assert (made.after <= made.before).all()
    torch.testing.assert_close(made.rounded, detector.score(made.images))
    alone = [craft(detector, v, threat, attack=PGD(steps=3), eight_bit=True) for v in x.split(1)]
    torch.testing.assert_close(made.images, torch.cat([a.images for a in alone]), atol=1e-2, rtol=0)
    plain = craft(detector, x, threat, direction="look_out", attack=PGD(steps=3))
    assert (plain.after >= plain.before).all()
    assert torch.equal(plain.after, plain.rounded)


class Coarse(MSP):
    """s(x) = floor(4 MSP(x)) / 4, whose gradient is 0."""

    def score_outputs(self, out):
        return (4 * super().score_outputs(out)).floor() / 4

    def surrogates(self):
        return (MSP(self.model).score_images,)


def test_craft_climbs_a_surrogate_where_the_score_is_dead(world, monkeypatch):
    detector, attack = Coarse(world.model), PGD(steps=10, random_start=False)
    made = craft(detector, world.outside, Linf(0.05), attack=attack)
    assert (made.after < made.before).all()
    torch.testing.assert_close(made.after, detector.score(made.images))
    monkeypatch.setattr(Coarse, "surrogates", lambda self: ())
    made = craft(detector, world.outside, Linf(0.05), attack=attack)
    assert torch.equal(made.images, world.outside)


def test_an_image_that_rounding_would_spoil_is_kept_as_it_was(world, monkeypatch):
    detector = MSP(world.model)
    x = torch.from_numpy(eight_bit(world.outside[:6])).float() / 255
    worst = craft(detector, x, Linf(0.05), direction="look_out", attack=PGD(steps=3)).images
    monkeypatch.setattr("rood.evaluation.crafting.to_8_bit", lambda x_adv, x, threat: worst)
    made = craft(detector, x, Linf(0.05), attack=PGD(steps=3), eight_bit=True)
    assert torch.equal(made.images, x)
    assert torch.equal(made.rounded, made.before)


def test_images_for_another_detector_of_that_name_are_not_kept(here):
    class Turned(MSP):
        def score_outputs(self, out):
            return -super().score_outputs(out)

    Turned.__name__ = "MSP"
    few = {"threats": ("linf:0.05",), "attack_options": {"steps": 3}, "limit": 12}
    what = {"models": ("net.safetensors",), "inside": "inside.npz", "detectors": ("msp",)}
    s = AuditSettings(**what, **few, batch_size=5, device="cpu")
    first = plan_crafting(s, "stripes.npz", "look_in", "png")
    second = replace(first, detector=Turned(first.detector.model))
    for crafting, out in ((first, "out"), (first, "out"), (second, "fresh")):
        assert [step.done for step in crafting.run(Path(out))][-1] == 12
    with pytest.warns(RoodWarning, match="of msp on net differ from those in out"):
        steps = [step.done for step in second.run(Path("out"))]
    assert steps == [0, 5, 10, 12]
    assert snapshot("out") == snapshot("fresh")


@pytest.mark.parametrize("name", [".lock", "scores.csv", "scores.csv.part", "images"])
def test_nothing_is_written_through_a_link(here, name):
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("precious")
    Path("out").mkdir()
    Path("out", name).symlink_to(elsewhere if name == "images" else elsewhere / "precious")
    refused(invoke(), "a link stands there", "remove the link")
    assert [p.read_text() for p in elsewhere.iterdir()] == ["precious"]
