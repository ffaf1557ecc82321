"""Running a plan: interrupted, continued, cached, and in any order."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from interrupted import settings
from safetensors.numpy import load_file, save_file
from small_audit import small_command, small_files
from toy_audit import audited, toy_case
from toy_plan import assert_same
from typer.testing import CliRunner

import rood
from rood.attacks import WorstOf
from rood.cli import app
from rood.errors import ResultsError, RoodWarning
from rood.evaluation.prepare import plan_audit
from rood.evaluation.run import Run, run
from rood.evaluation.store import Results, read_folder
from rood.evaluation.tasks import SetAttack
from rood.threat import Linf

HELPERS = Path(__file__).parents[1] / "helpers"


ENVIRONMENT = os.environ | {
    "PYTHONPATH": str(Path(rood.__file__).parents[1]),
    "OMP_NUM_THREADS": "1",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return small_files(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def case():
    case = toy_case()
    case.detectors.pop("odin")
    case.outside = {"grey": case.outside["grey"]}
    return case


@pytest.fixture(scope="module")
def undisturbed(case, tmp_path_factory):
    return audited(case, tmp_path_factory.mktemp("undisturbed"), threats=[Linf(0.05)]).folder


def continued(case, out):
    return audited(case, out, threats=[Linf(0.05)])


def interrupted(files, out, seed, kills):
    command = [sys.executable, str(HELPERS / "interrupted.py"), str(files), str(out), seed, kills]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_kill_9_at_five_random_moments_changes_no_byte(files, tmp_path):
    for _ in run(plan_audit(settings(str(files))), tmp_path / "whole"):
        pass
    *killed, last = interrupted(files, tmp_path / "killed", "20", "5")
    assert [line.split()[0] for line in killed] == ["killed"] * 5
    assert last == "finished"
    rows = [int(line.split()[1]) for line in killed]
    assert rows[0] < rows[-1]  # some were killed before the first rows, some after
    assert_same(tmp_path / "killed", tmp_path / "whole")
    assert json.loads((tmp_path / "killed" / "manifest.json").read_text())["finished"]


def spoil(path, how):
    rows = path / "rows.jsonl"
    if how == "a torn last line":
        rows.write_bytes(rows.read_bytes()[:-30])
    elif how == "a torn line and half the rows":
        rows.write_bytes(rows.read_bytes()[: len(rows.read_bytes()) // 2])
    elif how == "no rows at all":
        rows.unlink()
    elif how == "a spoilt line in the middle":
        lines = rows.read_bytes().splitlines(keepends=True)
        rows.write_bytes(b"".join([*lines[:5], b"{}\n", *lines[6:]]))
    elif how == "rows that nobody asked for":
        with rows.open("ab") as file:
            file.write(rows.read_bytes()[:2000])
    elif how == "left-over parts":
        for file in list(path.glob("scores/**/*.safetensors"))[:3]:
            file.with_name(file.name + ".part").write_bytes(b"half")
            file.unlink()
    elif how == "half the scores":
        for file in sorted(path.glob("scores/**/*.safetensors"))[::2]:
            file.unlink()
    elif how == "no examples":
        for file in path.glob("examples/**/*.safetensors"):
            file.unlink()
        for file in path.glob("scores/**/*pgd*.safetensors"):
            file.unlink()


@pytest.mark.parametrize(
    "how",
    [
        "a torn last line",
        "a torn line and half the rows",
        "no rows at all",
        "a spoilt line in the middle",
        "rows that nobody asked for",
        "left-over parts",
        "half the scores",
        "no examples",
    ],
)
def test_what_a_kill_leaves_behind_is_made_whole(case, undisturbed, tmp_path, how):
    out = tmp_path / "out"
    subprocess.run(["cp", "-r", str(undisturbed), str(out)], check=True)
    spoil(out, how)
    continued(case, out)
    assert_same(out, undisturbed)


def flipped(file, place):
    """Turn the last bit of one byte around, at a share of the file's length."""
    content = bytearray(file.read_bytes())
    content[int(place * (len(content) - 1))] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("place", [0.0, 0.1, 0.3, 0.6, 0.9, 1.0])
def test_a_flipped_bit_in_any_file_of_scores_changes_no_byte(case, undisturbed, tmp_path, place):
    out = tmp_path / "out"
    subprocess.run(["cp", "-r", str(undisturbed), str(out)], check=True)
    for file in out.glob("scores/**/*.safetensors"):
        flipped(file, place)
    with pytest.warns(RoodWarning, match="changed or damaged: it is measured anew"):
        continued(case, out)
    assert_same(out, undisturbed)


def test_damaged_examples_are_made_again(case, undisturbed, tmp_path):
    out = tmp_path / "out"
    subprocess.run(["cp", "-r", str(undisturbed), str(out)], check=True)
    for file in out.glob("examples/**/*.safetensors"):
        flipped(file, 0.9)
    with pytest.warns(RoodWarning, match="changed or damaged: it is measured anew"):
        continued(case, out)
    assert_same(out, undisturbed)


def test_a_file_of_scores_without_a_checksum_is_measured_anew(case, undisturbed, tmp_path):
    out = tmp_path / "out"
    subprocess.run(["cp", "-r", str(undisturbed), str(out)], check=True)
    for file in out.glob("scores/**/*.safetensors"):
        save_file(load_file(file), file)
    with pytest.warns(RoodWarning, match="it is measured anew"):
        continued(case, out)
    assert_same(out, undisturbed)


def test_a_flipped_bit_in_the_cache_changes_no_row(case, undisturbed, tmp_path, monkeypatch):
    monkeypatch.setenv("ROOD_CACHE", str(tmp_path / "cache"))
    continued(case, tmp_path / "first")
    units = sorted((tmp_path / "cache/units").iterdir())
    assert units
    for i, file in enumerate(units):
        flipped(file, (i + 1) / len(units))
    with pytest.warns(RoodWarning, match="it is measured anew"):
        continued(case, tmp_path / "second")
    rows = [(f / "rows.jsonl").read_bytes() for f in (undisturbed, tmp_path / "second")]
    assert rows[0] == rows[1]


def test_changed_rows_of_a_finished_audit_are_said_and_made_again(case, undisturbed, tmp_path):
    out = tmp_path / "out"
    subprocess.run(["cp", "-r", str(undisturbed), str(out)], check=True)
    rows = (out / "rows.jsonl").read_text()
    (out / "rows.jsonl").write_text(rows.replace('"value": 0', '"value": 1', 1))
    assert (out / "rows.jsonl").read_text() != rows
    assert any("not what the audit wrote" in p for p in read_folder(out).problems)
    with pytest.warns(RoodWarning, match="not what the audit wrote"):
        _ = Results(out).rows
    assert not any("not what" in p for p in read_folder(undisturbed).problems)
    continued(case, out)
    assert (out / "rows.jsonl").read_text() == rows


def test_a_finished_run_is_not_repeated(case, undisturbed, tmp_path, monkeypatch):
    monkeypatch.setattr(SetAttack, "run", lambda self: pytest.fail("attacked again"))
    before = (undisturbed / "rows.jsonl").read_bytes()
    cost = json.loads((undisturbed / "manifest.json").read_text())["cost"]
    continued(case, undisturbed)
    assert (undisturbed / "rows.jsonl").read_bytes() == before
    assert json.loads((undisturbed / "manifest.json").read_text())["cost"] == cost


def test_the_cost_of_attacks_before_a_kill_is_kept(case, undisturbed, tmp_path):
    out = tmp_path / "out"
    subprocess.run(["cp", "-r", str(undisturbed), str(out)], check=True)
    next(out.glob("scores/**/*pgd*.safetensors")).unlink()
    continued(case, out)
    costs = [json.loads((f / "manifest.json").read_text())["cost"] for f in (out, undisturbed)]
    assert costs[0]["forwards"] == costs[1]["forwards"]
    assert costs[0]["backwards"] == costs[1]["backwards"]


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"seed": 1}, ["seed"]),
        ({"threats": [Linf(0.06)]}, ["threats"]),
        ({"seed": 2, "sides": ("both",)}, ["seed", "sides"]),
        ({"name": "other"}, ["models.model", "models.other"]),
    ],
)
def test_other_settings_on_the_same_folder_are_named(case, undisturbed, changes, keys):
    before = (undisturbed / "rows.jsonl").read_bytes()
    with pytest.raises(ResultsError, match="other settings") as refusal:
        audited(case, undisturbed, **({"threats": [Linf(0.05)]} | changes))
    assert all(key in str(refusal.value) for key in keys)
    assert "batch_size" not in str(refusal.value)
    assert (undisturbed / "rows.jsonl").read_bytes() == before


def test_another_batch_size_may_continue(case, undisturbed, tmp_path):
    out = tmp_path / "out"  # the manifest will say this batch size
    subprocess.run(["cp", "-r", str(undisturbed), str(out)], check=True)
    audited(case, out, threats=[Linf(0.05)], batch_size=5)


def test_two_runs_on_one_folder_do_not_mix(case, undisturbed):
    with (undisturbed / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ResultsError, match="another run is writing to"):
            continued(case, undisturbed)
    continued(case, undisturbed)


def test_ctrl_c_says_one_line_and_the_same_command_goes_on(files, tmp_path):
    out = tmp_path / "out"
    more = ["--steps", "50", "--limit", "32"]  # many: the signal may come late
    code = "from rood.cli import app; app(prog_name='rood')"
    command = [sys.executable, "-c", code, *small_command(files, out, *more, "--quiet")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    while process.poll() is None and not list(out.glob("scores/**/*pgd*.safetensors")):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    said, complained = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "")
    small, stopped = complained.splitlines()
    assert small.startswith("note: small sample: ")
    assert stopped == "stopped: the same command continues from here"
    assert not json.loads((out / "manifest.json").read_text())["finished"]
    done = {f: f.stat().st_mtime_ns for f in out.glob("scores/**/*pgd*.safetensors")}
    assert done
    assert CliRunner().invoke(app, small_command(files, out, *more)).exit_code == 0
    assert {f: f.stat().st_mtime_ns for f in done} == done
    whole = tmp_path / "whole"
    assert CliRunner().invoke(app, small_command(files, whole, *more)).exit_code == 0
    assert_same(out, whole)


def test_images_that_are_done_change_no_metric(case, tmp_path, monkeypatch):
    """Left alone beyond every clean image of the other side, or climbed on for nothing."""
    plan = {"detectors": {"msp": case.detectors["msp"]}, "threats": [Linf(0.15)]}
    plan |= {"attack": WorstOf(tier="quick"), "outside": {"grey": case.outside["grey"]}}
    short = audited(case, tmp_path / "short", **plan)
    monkeypatch.setattr(Run, "_enough", lambda *_: torch.inf)
    long = audited(case, tmp_path / "long", **plan)
    cost = [json.loads((r.folder / "manifest.json").read_text())["cost"] for r in (short, long)]
    assert cost[0]["backwards"] < cost[1]["backwards"]
    metrics = [
        {(r.dataset, r.side, r.metric): r.value for r in results.rows if r.verdict != "-"}
        for results in (short, long)
    ]
    ranked = [k for k in metrics[0] if not k[2].startswith("flag_")]
    assert ranked
    assert {k: metrics[0][k] for k in ranked} == pytest.approx({k: metrics[1][k] for k in ranked})
