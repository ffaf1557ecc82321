"""`rood train` on one's own images, from flags or a file."""

import os
import pty
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from bad_input import class_folder, flat_folder
from terminal import ENVIRONMENT, ROOD, read_all
from typer.testing import CliRunner

from rood import data
from rood.cli import app
from rood.cli.train import _audit
from rood.data.base import SHARES
from rood.models import checkpoint
from rood.testing.world import blobs
from rood.training import job
from rood.training.loop import accuracy_of
from rood.training.recipe import changed, get, read

EXAMPLE = Path(__file__).parents[2] / "examples" / "train.toml"
NAMES = ("red", "green", "blue")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A folder of 300 labelled images, and 12 stripes to train against."""
    root = tmp_path_factory.mktemp("images")
    class_folder(root / "inside", *blobs(300, seed=5), NAMES)
    flat_folder(root / "stripes", 12)
    return root


def quick(images, out, *more):
    own = ["--data", f"folder:{images / 'inside'}", "--epochs", "2", "--batch-size", "60"]
    return ["train", *own, "--device", "cpu", "--out", str(out), *more]


def hardened(images, out, *more):
    against = ["--outliers", f"folder:{images / 'stripes'},procedural:noise,n=20"]
    return quick(images, out, "--objective", "aloe", "--eps", "8/255", *against, *more)


def invoke(*arguments):
    return CliRunner().invoke(app, list(arguments))


def refused(result, *said):
    assert result.exit_code == 1, (result.output, result.exception)
    assert isinstance(result.exception, SystemExit)
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert not line.endswith(".")
    assert all(word in line for word in said), line


@pytest.fixture(scope="module")
def first(images, tmp_path_factory):
    """One network hardened by flags, which other tests look at."""
    out = tmp_path_factory.mktemp("first") / "run"
    return out, invoke(*hardened(images, out))


# --- one's own images ---


def test_own_images_give_a_network_with_a_card(images, first):
    out, result = first
    assert result.exit_code == 0, result.output
    assert sorted(f.name for f in out.iterdir()) == ["net.json", "net.safetensors"]
    card = checkpoint.read_card(out / "net.safetensors")
    assert card["classes"] == sorted(NAMES)
    facts = card["training"]
    parts = data.split(data.load(f"folder:{images / 'inside'}"), "", **SHARES)
    assert facts["data"]["sha256"] == parts["fit"].fingerprint()
    assert facts["tested_on"]["sha256"] == parts["test"].fingerprint()
    assert facts["outliers"]["images"] == 32
    assert facts["objective"]["name"] == "aloe"
    assert facts["objective"]["steps"] == 6
    assert facts["objective"]["eps"] == 8 / 255
    assert facts["objective"]["step"] == pytest.approx(8 / 255 / 3)
    assert facts["hardware"]
    model = checkpoint.load(out / "net.safetensors")
    assert facts["accuracy"] == round(accuracy_of(model, parts["test"]), 4)
    pixels = parts["fit"].pixels().double()
    assert card["mean"] == pytest.approx(pixels.mean(dim=(0, 2, 3)).tolist(), abs=1e-4)
    assert card["std"] == pytest.approx(pixels.std(dim=(0, 2, 3)).tolist(), abs=1e-3)


def test_what_is_said_is_plain_without_a_terminal(first):
    out, result = first
    said = result.stdout.splitlines()
    assert re.fullmatch(r"epoch 2 of 2: loss \d\.\d{4}, accuracy \d\.\d{3}, \d+\.\d s", said[1])
    assert re.fullmatch(r"accuracy \d\.\d{3} on \d+ images, \d+ s", said[2])
    assert said[3] == f"weights: {out / 'net.safetensors'}"
    assert "\x1b" not in result.output
    assert "\r" not in result.output
    assert result.stderr == ""


def test_the_audit_that_is_offered_runs(first, tmp_path):
    _, result = first
    (offered,) = re.findall(r"^attack it: rood (.*)$", result.stdout, re.M)
    command = shlex.split(offered)
    assert command[command.index("--eps") + 1] == "8/255"
    command[command.index("--out") + 1] = str(tmp_path / "audit")
    few = ["--detectors", "msp", "--steps", "2", "--limit", "10", "--device", "cpu"]
    audited = invoke(*command, *few)
    assert audited.exit_code == 0, audited.output
    assert (tmp_path / "audit" / "report.html").exists()


def test_the_command_in_the_card_gives_the_same_weights(first, tmp_path):
    out, _ = first
    facts = checkpoint.read_card(out / "net.safetensors")["training"]
    program, *command = shlex.split(facts["command"])
    assert program == "rood"
    command[command.index("--out") + 1] = str(tmp_path / "again.safetensors")
    assert invoke(*command, "--device", "cpu").exit_code == 0
    assert same(out / "net.safetensors", tmp_path / "again.safetensors")


def same(a, b):
    return checkpoint.load(a).fingerprint() == checkpoint.load(b).fingerprint()


def test_a_settings_file_means_the_same_as_flags(images, first, tmp_path):
    file = tmp_path / "train.toml"
    file.write_text(
        f"""
        data = "folder:{images / "inside"}"
        outliers = "folder:{images / "stripes"},procedural:noise,n=20"
        objective = {{ name = "aloe", eps = "8/255" }}
        settings = {{ epochs = 7, batch_size = 60 }}
        """
    )
    more = ["--epochs", "2", "--out", str(tmp_path), "--device", "cpu"]
    result = invoke("train", str(file), *more)
    assert result.exit_code == 0, result.output
    assert same(first[0] / "net.safetensors", tmp_path / "net.safetensors")


def test_a_run_that_was_stopped_goes_on_with_the_same_command(images, first, tmp_path):
    out = tmp_path / "run" / "net.safetensors"
    flags = {
        "data": f"folder:{images / 'inside'}",
        "outliers": f"folder:{images / 'stripes'},procedural:noise,n=20",
        "objective": "aloe",
        "eps": "8/255",
        "epochs": 2,
        "batch_size": 60,
    }
    epochs = job.run(read(changed({}, flags), "flags"), out, "")
    next(epochs)
    epochs.close()
    assert [f.name for f in out.parent.iterdir()] == ["net.safetensors.training"]
    result = invoke(*hardened(images, tmp_path / "run"))
    assert result.exit_code == 0, result.output
    assert same(first[0] / "net.safetensors", out)
    refused(invoke(*hardened(images, tmp_path / "run")), "expected no network at", "found one")


def test_held_out_images_are_tested_on_and_never_trained_on(images, tmp_path):
    held = class_folder(tmp_path / "held", *blobs(40, seed=6), NAMES)
    for i, file in enumerate(sorted((images / "inside" / "red").iterdir())[:3]):
        (held / "red" / f"copy{i}.png").write_bytes(file.read_bytes())
    result = invoke(*quick(images, tmp_path / "run", "--held-out", f"folder:{held}"))
    assert result.exit_code == 0, result.output
    assert "note: data: 3 images left out because they are held out\n" in result.stderr
    facts = checkpoint.read_card(tmp_path / "run" / "net.safetensors")["training"]
    assert facts["data"]["images"] == 297
    assert facts["tested_on"] == {
        "spec": f"folder:{held}",
        "images": 43,
        "sha256": data.load(f"folder:{held}").fingerprint(),
    }
    assert f"--inside folder:{held} --train folder:{images / 'inside'}" in result.stdout
    (held / "red").rename(held / "rouge")
    again = invoke(*quick(images, tmp_path / "other", "--held-out", f"folder:{held}"))
    refused(again, "to have the classes 'blue', 'green', 'red', got 'blue', 'green', 'rouge'")


def test_outliers_that_repeat_an_unseen_image_are_counted_in_the_card(images, tmp_path):
    unseen = tmp_path / "unseen"
    unseen.mkdir()
    (unseen / "a.png").write_bytes((images / "stripes" / "3.png").read_bytes())
    result = invoke(*hardened(images, tmp_path / "run", "--unseen", f"folder:{unseen}"))
    assert result.exit_code == 0, result.output
    told = [n for n in result.stderr.splitlines() if n.startswith("note: outliers: ")]
    assert any(" left out: trained or tested on as well" in n for n in told)
    facts = checkpoint.read_card(tmp_path / "run" / "net.safetensors")["training"]
    assert [f"note: outliers: {n}" for n in facts["outliers"]["notes"]] == told
    assert facts["outliers"]["images"] < 32
    assert f"--outside folder:{unseen}" in result.stdout


def test_another_size_is_divided_as_the_audit_will_divide_it(images, tmp_path):
    result = invoke(*quick(images, tmp_path, "--size", "12"))
    assert result.exit_code == 0, result.output
    card = checkpoint.read_card(tmp_path / "net.safetensors")
    assert card["shape"] == [3, 12, 12]
    loaded = data.load(f"folder:{images / 'inside'}", shape=(3, 12, 12))
    fit = data.split(loaded, "", **SHARES)["fit"]
    assert card["training"]["data"]["sha256"] == fit.fingerprint()


def test_a_terminal_shows_progress_with_loss_and_time_left(images, tmp_path):
    ours, theirs = pty.openpty()
    command = [*ROOD, *quick(images, tmp_path / "out", "--epochs", "8")]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=ENVIRONMENT) as process:
        os.close(theirs)
        seen = read_all(ours)
    assert process.returncode == 0, seen
    assert re.search(r"\d+ % .*\d:\d\d:\d\d.*\d:\d\d:\d\d.* left .*epoch \d+ of 8: loss", seen)


BAD = {
    "nothing": (["train"], "expected images to train on, got none: name them with --data"),
    "name and more": (["train", "--name", "digits-ce", "--epochs", "3"], "got --epochs too"),
    "unknown name": (["train", "--name", "digits-alo"], "did you mean 'digits-aloe'?"),
    "no folder": (["train", "--data", "folder:nowhere"], "'nowhere' does not exist"),
    "no file": (["train", "nowhere.toml"], "expected a settings file at nowhere.toml"),
    "no eps": ([..., "--eps", "8/255"], "expected no eps for cross_entropy, got one"),
    "no outliers": ([..., "--objective", "aloe"], "aloe needs outliers, got none"),
    "l2": ([..., "--objective", "adv", "--eps", "l2:1"], "expected an L-infinity eps"),
    "eps": ([..., "--objective", "adv", "--eps", "x"], "expected a threat such as"),
    "objective": ([..., "--objective", "alo"], "did you mean 'aloe'?"),
    "backbone": ([..., "--backbone", "small_cn"], "did you mean 'small_cnn'?"),
    "epochs": ([..., "--epochs", "0"], "expected epochs > 0, got 0"),
    "batch": ([..., "--batch-size", "1"], "at least 2 images to train on at once"),
    "lr": ([..., "--lr", "nan"], "expected lr > 0, got nan"),
    "size": ([..., "--size", "0"], "expected a shape"),
    "device": ([..., "--device", "gpu"], "expected a device such as cpu or cuda"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(case, images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command, said = BAD[case]
    own = quick(images, "out") if command[0] is ... else ["train", "--out", "out"]
    refused(invoke(*own, *command[1:]), said)


def test_unlabelled_images_and_bad_places_are_refused(images, tmp_path):
    flat = ["train", "--data", f"folder:{images / 'stripes'}", "--out", str(tmp_path / "x")]
    refused(invoke(*flat), "expected labelled images", "put them in one folder per class")
    (tmp_path / "file").write_text("")
    refused(invoke(*quick(images, tmp_path / "file" / "x")), "cannot write to")
    same_again = f"folder:{images / 'inside'}"
    against = ["--objective", "oe", "--outliers", same_again]
    refused(invoke(*quick(images, tmp_path / "y", *against)), "but none is left")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epochs = 3", "expected `data`"),
        ("data = 'x'\nepoch = 3", "no setting is called 'epoch'"),
        ("data = 'x'\nsettings = 3", "settings"),
        ("data = 'x'\nobjective = 3", "expected a name or a table with a `name`, got 3"),
        ("data = 'x'\nobjective = {eps = 1}", "expected a name or a table with a `name`"),
        ("data = 'x'\nobjective = {name = 'oe', wait = 1}", "did you mean 'weight'?"),
        ("data = [", "expected TOML in"),
    ],
)
def test_a_bad_settings_file_is_one_sentence(text, said, tmp_path):
    (tmp_path / "bad.toml").write_text(text)
    for more in ([], ["--seed", "1"]):
        result = invoke("train", str(tmp_path / "bad.toml"), "--out", str(tmp_path), *more)
        refused(result, said)


def test_unreadable_images_can_be_skipped(images, tmp_path):
    folder = class_folder(tmp_path / "in", *blobs(90, seed=2), NAMES)
    (folder / "red" / "bad.png").write_bytes(b"no picture")
    own = ["train", "--data", str(folder), "--epochs", "1", "--out", str(tmp_path / "x")]
    refused(invoke(*own), "use --skip-bad")
    result = invoke(*own, "--skip-bad")
    assert result.exit_code == 0, result.output
    assert "could not be read" in result.stderr
    facts = checkpoint.read_card(tmp_path / "x" / "net.safetensors")["training"]
    assert facts["command"].endswith(f"--epochs 1 --skip-bad --out {tmp_path / 'x'}")


def test_every_flag_arrives(images, tmp_path):
    more = ["--seed", "3", "--lr", "0.05", "--backbone", "wide_resnet", "--epochs", "1"]
    assert invoke(*quick(images, tmp_path, *more)).exit_code == 0
    card = checkpoint.read_card(tmp_path / "net.safetensors")
    assert card["backbone"] == "wide_resnet"
    found = card["training"]["settings"]
    assert [found[k] for k in ("seed", "lr", "epochs", "batch_size")] == [3, 0.05, 1, 60]


def test_a_network_of_the_zoo_is_offered_beside_the_plain_one():
    weights = Path("runs") / "mine" / "net.safetensors"
    said = _audit(get("digits-aloe"), "digits-aloe", weights)
    assert said == f"rood audit --model digits-ce --model {weights} --out runs/mine/audit"
    plain = _audit(get("digits-ce"), "digits-ce", weights)
    assert plain == f"rood audit --model {weights} --out runs/mine/audit"
