"""`rood fit` and `rood score`: a guard from the command line, rows as they are made, drift."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from bad_input import refused
from PIL import Image
from refusals import refused as refuses
from safetensors.torch import save_file
from small_audit import MEAN, STD, eight_bit, small_files, small_model
from torch import nn
from typer.testing import CliRunner

import rood
from rood import data
from rood.cli import app
from rood.errors import CapabilityError, DataError, InputError, ResultsError
from rood.evaluation.settings import AuditSettings
from rood.guard.calibration import Calibration, calibrate
from rood.guard.drift import COLUMNS as DRIFT
from rood.guard.drift import DriftLog
from rood.guard.fit import fit_guard
from rood.guard.guard import Guard
from rood.guard.scoring import COLUMNS, FolderScores
from rood.models import checkpoint
from rood.testing.world import blobs, stripes

CLASSES = {"red", "green", "blue"}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The usual files, a guard, and a folder of 24 images, the last 12 from outside."""
    root = small_files(tmp_path_factory.mktemp("small"))
    done = invoke("fit", *fitting(root), "--out", str(root / "guard"))
    assert done.exit_code == 0, done.output
    pictures(root / "pictures")
    return root


def fitting(root):
    net, inside = (str(Path(root, n)) for n in ("net.safetensors", "inside.npz"))
    return ["--model", net, "--inside", inside, "--device", "cpu", "--rate", "0.1"]


def pictures(root):
    """Of three sizes, in two folders, one below the other."""
    (root / "more").mkdir(parents=True)
    x = eight_bit(torch.cat([blobs(12, seed=31)[0], stripes(12, seed=32)]))
    for i, image in enumerate(x):
        picture = Image.fromarray(image.transpose(1, 2, 0))
        if i % 3:
            picture = picture.resize((8 * (i % 3), 12))
        picture.save(root / ("more" if i >= 12 else "") / f"{i:02}.png")


def invoke(*arguments):
    return CliRunner().invoke(app, list(arguments))


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


# --- rood fit


def test_fit_says_what_the_guard_promises(here):
    result = invoke("fit", *fitting("."), "--detector", "knn", "--out", "new")
    assert result.exit_code == 0, (result.output, result.exception)
    guard = Guard.load("new")
    c = guard.calibration
    assert f"threshold {c.threshold:.6g}: {c.told()}" in result.stdout
    assert "test images: " in result.stdout
    assert re.search(r"; of noise: \d+\.\d %\n", result.stdout)
    card = json.loads(Path("new/guard.json").read_text())
    assert f"guard: new (sha256 {card['sha256']})" in result.stdout
    assert set(guard.classes) == CLASSES
    assert (card["about"]["network"], card["about"]["detector"]) == ("net", "knn")
    assert card["about"]["split"]["calibrate"] == c.n


def test_fit_and_the_library_make_the_same_guard(here):
    again = fit_guard(
        AuditSettings(
            models=("net.safetensors",), detectors=("msp",), inside="inside.npz", device="cpu"
        ),
        rate=0.1,
    )
    assert again.guard.calibration == Guard.load("guard").calibration
    parts = data.split(data.load("inside.npz"), "", fit=0.6, calibrate=0.1, test=0.3)
    scores = again.guard.detector.score(parts["calibrate"].pixels())
    assert calibrate(scores.numpy(), 0.1) == again.guard.calibration
    assert again.n_test == len(parts["test"])
    rejected = 1 - float(again.guard(parts["test"].pixels()).accept.float().mean())
    assert again.test.value == pytest.approx(rejected)


def test_fit_works_with_defaults(tmp_path):
    assert invoke("fit", "--out", str(tmp_path / "guard")).exit_code == 0
    assert Guard.load(tmp_path / "guard").shape == (1, 28, 28)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--rate", "0"), "false-alarm rate between 0 and 1"),
        (("--rate", "0.01"), "expected at least 99 in-distribution images"),
        (("--detector", "nonsense"), "no detector is called 'nonsense'"),
        (("--detector", "all"), "expected one network and one detector in a guard"),
        (("--model", "nothing"), "nothing"),
        (("--out", "inside.npz"), "cannot write a guard to 'inside.npz'"),
    ],
)
def test_what_cannot_be_fitted_is_said_in_a_line(here, more, words):
    refused(invoke("fit", *fitting("."), "--out", "new", *more), words)
    assert not Path("new").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--rate", "1"), "false-alarm rate between 0 and 1"),
        (("--rate", "nan"), "false-alarm rate between 0 and 1, got nan"),
        (("--onnx", "new.pb"), "a name that ends in .onnx or .pt2, got 'new.pb'"),
        (("--onnx", "taken.onnx"), "'taken.onnx' is a folder"),
        (("--mean", "0.4,grey"), "such as 0.485,0.456,0.406, got '0.4,grey'"),
        (("--std", ","), "for --std"),
    ],
)
def test_a_slip_of_the_pen_is_told_before_anything_is_fitted(here, monkeypatch, more, words):
    Path("taken.onnx").mkdir()
    begun = []
    monkeypatch.setattr("rood.guard.fit.prepare", begun.append)
    refused(invoke("fit", *fitting("."), "--out", "new", *more), words)
    assert not begun


def test_weights_and_normalisation_are_named_as_in_an_audit(here, own):
    net = own.make()
    save_file(net.state_dict(), "own.safetensors")
    blank = nn.Sequential(small_model().net)
    nn.init.zeros_(blank[0].head.weight)
    own.make = lambda: blank
    named = ("--model", "own_net:make", "--weights", "own.safetensors")
    normal = ("--mean", ",".join(map(str, MEAN)), "--std", ",".join(map(str, STD)))
    result = invoke("fit", *fitting("."), *named, *normal, "--out", "new")
    assert result.exit_code == 0, (result.output, result.exception)
    want = rood.wrap(net, mean=MEAN, std=STD)
    assert Guard.load("new", model=want).model.fingerprint() == want.fingerprint()
    scored = invoke("score", "new", "pictures", "--device", "cpu", *named)
    assert scored.exit_code == 0, (scored.output, scored.exception)
    alone = invoke("fit", *fitting("."), *normal, "--out", "alone")
    refused(alone, "expected no weights, mean or std beside", "net.safetensors")


def test_fit_exports_the_graph_too(here, monkeypatch):
    asked = []
    monkeypatch.setattr(Guard, "export", lambda self, path: asked.append(str(path)))
    result = invoke("fit", *fitting("."), "--out", "new", "--onnx", "new.onnx")
    assert asked == ["new.onnx"]
    assert "graph: new.onnx" in result.stdout


# --- rood score


def test_score_writes_a_row_for_every_file(here):
    result = invoke("score", "guard", "pictures", "--csv", "scores.csv", "--device", "cpu")
    assert result.exit_code == 0, (result.output, result.exception)
    found = rows(Path("scores.csv").read_text())
    assert tuple(found[0]) == COLUMNS
    names = [f"{i:02}.png" for i in range(12)] + [f"more/{i}.png" for i in range(12, 24)]
    assert [r["file"] for r in found] == names
    shape = Guard.load("guard").shape
    parts = [data.load(f, shape=shape).pixels() for f in ("folder:flat", "folder:pictures/more")]
    label, score, accept = Guard.load("guard")(torch.cat(parts))
    assert [int(r["label"]) for r in found] == label.tolist()
    assert [np.float32(r["score"]) for r in found] == pytest.approx(score.tolist(), rel=1e-5)
    assert [r["accept"] == "yes" for r in found] == accept.tolist()
    assert {r["class"] for r in found} <= CLASSES
    rejected = sum(r["accept"] == "no" for r in found)
    assert f"{rejected} of 24 images rejected: " in result.stdout
    assert "rows: scores.csv" in result.stdout
    assert result.stderr == "note: 16 images were resized to 8x8\n"


@pytest.fixture(autouse=True)
def flat(files):
    """The first images by themselves, which `folder:` wants."""
    root = files / "flat"
    if not root.exists():
        root.mkdir()
        for file in (files / "pictures").glob("*.png"):
            (root / file.name).symlink_to(file)


def test_without_a_file_the_rows_go_to_stdout_alone(here):
    result = invoke("score", "guard", "pictures", "--device", "cpu")
    assert len(rows(result.stdout)) == 24
    assert "images rejected" in result.stderr


def damaged(folder="pictures"):
    """A copy of the images in which one is cut short and one is empty."""
    root = Path("damaged")
    root.mkdir()
    for file in sorted(Path(folder).glob("*.png")):
        (root / file.name).write_bytes(file.read_bytes())
    for name, keep in (("05.png", 60), ("07.png", 0)):
        (root / name).write_bytes((root / name).read_bytes()[:keep])
    return root


def test_a_bad_file_is_named_and_the_rows_before_it_are_kept(here):
    more = ("--csv", "scores.csv", "--batch-size", "4", "--device", "cpu")
    refused(invoke("score", "guard", str(damaged()), *more), "05.png", "use --skip-bad")
    assert [r["file"] for r in rows(Path("scores.csv").read_text())] == [
        f"{i:02}.png" for i in range(5)
    ]


def test_bad_files_are_skipped_and_named(here):
    more = ("--csv", "scores.csv", "--skip-bad", "--device", "cpu")
    result = invoke("score", "guard", str(damaged()), *more)
    assert result.exit_code == 0, result.output
    left = [r["file"] for r in rows(Path("scores.csv").read_text())]
    assert left == [f"{i:02}.png" for i in range(12) if i not in (5, 7)]
    assert "2 could not be read and were skipped: '05.png', '07.png'" in result.stderr
    for file in Path("damaged").iterdir():
        file.write_bytes(b"")
    refused_later = invoke("score", "guard", "damaged", *more)
    assert refused_later.exit_code == 1
    assert "none of 12 files can be read" in refused_later.stderr


def test_rows_are_on_disk_as_they_are_made(here):
    scores = FolderScores(Guard.load("guard"), Path("pictures"), batch_size=5)
    with Path("scores.csv").open("w", encoding="utf-8", newline="") as table:
        seen = [
            (s.done, len(Path("scores.csv").read_text().splitlines())) for s in scores.run(table)
        ]
    assert seen == [(5, 6), (10, 11), (15, 16), (20, 21), (24, 25)]
    assert scores.share().value == scores.rejected / 24


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere", "pictures"), "expected a guard in 'nowhere'"),
        (("guard", "nowhere"), "'nowhere' does not exist"),
        (("guard", "inside.npz"), "is a file"),
        (("guard", "guard"), "got none (looked for"),
        (("guard", "pictures", "--batch-size", "0"), "at least one image per batch"),
        (("guard", "pictures", "--device", "nonsense"), "expected a device"),
        (
            ("guard", "pictures", "--drift", "d.csv", "--window", "0"),
            "at least one image per window",
        ),
        (("guard", "pictures", "--drift", "inside.npz"), "got another file"),
    ],
)
def test_what_cannot_be_scored_is_said_and_an_old_table_stays(here, arguments, words):
    Path("scores.csv").write_text("old\n")
    refused(invoke("score", *arguments, "--csv", "scores.csv"), words)
    assert Path("scores.csv").read_text() == "old\n"


def test_a_table_that_cannot_be_written_is_named(here):
    result = invoke("score", "guard", "pictures", "--csv", "no/such/scores.csv")
    refused(result, "cannot write to no/such/scores.csv")


def test_a_guard_without_its_network_says_what_is_missing(here, world):
    knn = rood.detectors.KNN(world.model, k=5).fit(world.train)
    Guard.calibrated(knn, world.train).save("foreign")
    refused(invoke("score", "foreign", "pictures"), "Guard.load(folder, model=network)")
    refuses(CapabilityError, "does not contain", Guard.load, "foreign")


@pytest.fixture
def own(monkeypatch):
    """A module `own_net` whose network no guard can hold."""
    made = ModuleType("own_net")
    made.make = lambda: nn.Sequential(small_model().net)
    monkeypatch.setitem(sys.modules, "own_net", made)
    return made


def test_a_network_from_elsewhere_is_named_in_the_command(here, own):
    net = own.make()
    msp = rood.detectors.MSP(rood.wrap(net, mean=MEAN, std=STD))
    Guard.calibrated(msp, data.load("inside.npz").batches(64)).save("normalised")
    assert invoke("fit", *fitting("."), "--model", "own_net:make", "--out", "plain").exit_code == 0
    rest = ("pictures", "--device", "cpu")
    for guard in ("normalised", "plain"):
        refused(invoke("score", guard, *rest), "does not contain", "or rood score --model")
        result = invoke("score", guard, *rest, "--model", "own_net:make")
        assert result.exit_code == 0, (result.output, result.exception)
        loaded = Guard.load(guard, model=own.make())
        with Path("said.csv").open("w+", encoding="utf-8", newline="") as said:
            list(FolderScores(loaded, Path("pictures")).run(said))
        assert rows(result.stdout) == rows(Path("said.csv").read_text())


def test_the_weights_of_a_network_from_elsewhere_are_named_too(here, own):
    net = own.make()
    assert invoke("fit", *fitting("."), "--model", "own_net:make", "--out", "plain").exit_code == 0
    save_file(net.state_dict(), "own.safetensors")
    with torch.no_grad():
        net[0].head.bias += 1
    own.make = lambda: net
    rest = ("score", "plain", "pictures", "--model", "own_net:make")
    refused(invoke(*rest), "expected the network of the guard")
    assert invoke(*rest, "--weights", "own.safetensors").exit_code == 0
    refused(invoke(*rest[:3], "--weights", "own.safetensors"), "expected --model beside --weights")
    refused(invoke(*rest[:4], "net.safetensors"), "expected the network of the guard")
    refused(invoke(*rest[:4], "nonsense"), "no trained network is called 'nonsense'")


def test_what_starts_again_after_ctrl_c_says_so(here, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("rood.guard.scoring.images_below", stopped)
    result = invoke("score", "guard", "pictures")
    assert result.exit_code == 130
    assert result.stderr == "stopped: the same command starts from the beginning\n"


def test_hidden_files_and_names_that_are_no_text_are_dealt_with(here):
    root = Path("odd")
    (root / ".hidden").mkdir(parents=True)
    content = Path("pictures/00.png").read_bytes()
    for name in (".hidden/a.png", ".b.png", "comma, and\nline.png", "note.txt"):
        (root / name).write_bytes(content)
    Path(os.fsdecode(b"odd/\xff.png")).write_bytes(content)
    result = invoke("score", "guard", "odd", "--csv", "scores.csv", "--device", "cpu")
    assert result.exit_code == 0, result.output
    with Path("scores.csv").open(newline="", encoding="utf-8") as file:
        found = rows(file.read())
    assert [r["file"] for r in found] == ["comma, and\nline.png", "\\udcff.png"]


def test_an_unreadable_folder_is_named(here, monkeypatch):
    def walk(root, onerror):
        onerror(PermissionError(13, "Permission denied", "pictures/more"))
        return []

    monkeypatch.setattr("rood.guard.scoring.os.walk", walk)
    refuses(DataError, "cannot be listed", FolderScores, Guard.load("guard"), Path("pictures"))


# --- drift


def known(rate=0.05, n=10_000):
    return calibrate(np.arange(float(n)), rate)


def logged(path, decisions, calibration=None, window=100):
    log = DriftLog(path, calibration or known(), window, clock=lambda: "now")
    for part in decisions:
        log.see(part)
    log.close()
    return rows(path.read_text())


def accepts(n, rejected):
    return [i >= rejected for i in range(n)]


def test_a_window_is_a_row_however_the_decisions_came(tmp_path):
    decisions = accepts(250, 20)
    once = logged(tmp_path / "a.csv", [decisions])
    by_7 = logged(tmp_path / "b.csv", [decisions[i : i + 7] for i in range(0, 250, 7)])
    assert once == by_7
    assert [(r["images"], r["rejected"]) for r in once] == [
        ("100", "20"),
        ("100", "0"),
        ("50", "0"),
    ]
    assert tuple(once[0]) == DRIFT
    assert once[0]["share"] == "0.2000"
    assert float(once[0]["low"]) < 0.2 < float(once[0]["high"])
    assert once[0]["expected"] == "0.0500"


def test_an_alarm_is_raised_where_the_interval_leaves_the_calibrated_range(tmp_path):
    fewer, none, more = (0, 30), (40, 50, 60), (70, 999)
    for alarm, shares in {"fewer": fewer, "": none, "more": more}.items():
        for rejected in shares:
            (row,) = logged(tmp_path / f"{rejected}.csv", [accepts(1000, rejected)], window=1000)
            assert row["alarm"] == alarm, rejected
    few = Calibration(rate=0.05, n=60, rank=58, threshold=0.0, rejected=2)
    (row,) = logged(tmp_path / "few.csv", [accepts(1000, 90)], few, window=1000)
    assert row["alarm"] == ""  # sixty images do not tell 5 % from 9 %


def test_without_drift_alarms_are_rare(tmp_path):
    g = np.random.default_rng(3)
    decisions = (g.random(200 * 500) > 0.05).tolist()
    found = logged(tmp_path / "d.csv", [decisions], window=500)
    assert len(found) == 200
    assert sum(r["alarm"] != "" for r in found) <= 0.05 * 200


def test_a_log_goes_on_where_it_was(tmp_path):
    path = tmp_path / "d.csv"
    logged(path, [accepts(100, 3)])
    found = logged(path, [accepts(100, 4)])
    assert [r["rejected"] for r in found] == ["3", "4"]
    path.write_text("another,table\n")
    refuses(ResultsError, "got another file", DriftLog, path, known())
    refuses(InputError, "at least one image per window", DriftLog, tmp_path / "e.csv", known(), 0)
    assert not (tmp_path / "e.csv").exists()


@pytest.mark.parametrize("cut", [1, 9])
def test_a_row_that_was_cut_short_does_not_spoil_the_next(tmp_path, cut):
    path = tmp_path / "d.csv"
    logged(path, [accepts(200, 3)])
    path.write_bytes(path.read_bytes()[:-cut])
    found = logged(path, [accepts(100, 4)])
    assert [r["rejected"] for r in found] == ["3", "4"]
    for head in (b"", DRIFT[0].encode(), ",".join(DRIFT).encode()):  # the first row was
        path.write_bytes(head)
        assert [r["rejected"] for r in logged(path, [accepts(100, 4)])] == ["4"]


def test_score_keeps_a_drift_log(here):
    result = invoke("score", "guard", "pictures", "--drift", "d.csv", "--window", "12")
    assert result.exit_code == 0, result.output
    inside, outside = rows(Path("d.csv").read_text())
    assert (outside["rejected"], outside["alarm"]) == ("12", "more")
    assert inside["alarm"] == ""
    assert inside["time"].endswith("+00:00")


def test_the_commands_explain_themselves_without_torch():
    for command in ("fit", "score"):
        assert invoke(command, "--help").exit_code == 0
    code = (
        "import sys; from rood.cli import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: print('torch' in sys.modules, 'scipy' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(rood.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.stdout.splitlines()[-1] == "False False"
    assert {"fit", "score"} <= set(done.stdout.split())


def test_the_network_in_the_guard_is_the_one_it_was_made_with(here):
    wanted = checkpoint.load("net.safetensors").fingerprint()
    assert Guard.load("guard").model.fingerprint() == wanted
