"""The command: quick to answer, readable for a person, parseable for a machine."""

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from report_folder import row
from small_audit import small_command
from terminal import ENVIRONMENT, ROOD, read_all
from typer.testing import CliRunner

import rood
from rood.cli import app
from rood.cli.list import KINDS
from rood.cli.show import table
from rood.evaluation.rows import Row
from rood.evaluation.store import read_folder

GOLDEN = Path(__file__).parents[1] / "report" / "golden" / "table.txt"


COMMANDS = ("attack", "audit", "doctor", "fit", "list", "report", "score", "train")


@pytest.fixture(scope="module")
def first(files, tmp_path_factory):
    """One audit by flags, which other tests look at: the folder and what was said."""
    out = tmp_path_factory.mktemp("first") / "out"
    return out, invoke(*small_command(files, out))


def invoke(*arguments):
    return CliRunner().invoke(app, list(arguments))


def lines(folder):
    return (folder / "rows.jsonl").read_text().splitlines()


def test_help_comes_at_once_and_without_torch():
    took = []
    for _ in range(5):
        start = os.times()
        done = subprocess.run([*ROOD, "--help"], capture_output=True, text=True, env=ENVIRONMENT)
        end = os.times()  # of the processor: a busy machine's clock says nothing
        took.append(end.children_user - start.children_user)
        assert done.returncode == 0
    assert all(command in done.stdout for command in COMMANDS)
    assert min(took) < 0.5
    code = "import sys, rood.cli; print({'torch', 'numpy', 'plotly'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=ENVIRONMENT)
    assert done.stdout == b"set()\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert result.output.strip()
    assert "Traceback" not in result.output


def test_usage_errors_end_with_2():
    assert invoke("audit", "--no-such-option").exit_code == 2
    assert invoke("no-such-command").exit_code == 2
    assert invoke("--version").stdout.strip() == rood.__version__


@pytest.mark.parametrize("kind", KINDS)
def test_list_names_everything_of_a_kind(kind):
    entries = list(KINDS[kind]())
    result = invoke("list", kind, "--json")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [f["name"] for f in found] == [e.name for e in entries]
    assert {f["kind"] for f in found} <= {kind}
    plain = invoke("list", kind)
    assert plain.exit_code == 0
    assert "\x1b" not in plain.stdout
    squeezed = re.sub(r"\W", "", plain.stdout)
    assert all(re.sub(r"\W", "", e.name)[:8] in squeezed for e in entries)


def test_list_without_a_kind_lists_all():
    found = [json.loads(line) for line in invoke("list", "--json").stdout.splitlines()]
    assert {"detectors", "attacks", "data"} <= {f["kind"] for f in found}
    assert {f["gradient"] for f in found if f["kind"] == "detectors"} <= {
        "exact",
        "almost_everywhere",
        "surrogate",
        "none",
    }


def test_list_of_an_unknown_kind_offers_the_nearest():
    result = invoke("list", "detector")
    assert result.exit_code == 1
    assert result.stderr == ("error: no list is called 'detector': did you mean 'detectors'?\n")


def test_an_audit_by_flags_writes_the_folder_and_shows_the_table(first):
    out, result = first
    assert result.exit_code == 0, result.output
    assert {p.name for p in out.iterdir()} >= {"rows.jsonl", "manifest.json", "report.html"}
    assert re.search(
        r"^net: AUROC .* pgd linf:0\.05; accuracy 1\.000 of 66 images", result.stdout, re.M
    )
    for name in ("msp", "knn"):
        (attacked,) = [
            r
            for r in map(json.loads, lines(out))
            if (r["detector"], r["side"], r["scenario"], r["metric"])
            == (name, "both", "pgd linf:0.05", "auroc")
        ]
        (line,) = [t for t in result.stdout.splitlines() if t.strip().startswith(name)]
        assert f"{attacked['value']:.3f}  {attacked['low']:.3f} to {attacked['high']:.3f}" in line
    assert result.stdout.splitlines()[-1] == f"report: {out / 'report.html'}"


def test_the_folder_knows_the_command_and_the_classes_behind_the_accuracy(files, first):
    found = read_folder(first[0])
    typed = shlex.split(found.manifest["command"])
    assert typed == ["rood", *small_command(files, first[0])]
    (classes,) = found.classes
    assert classes.model == "net"
    assert (classes.predicted == classes.labels).all()
    for saved in found.scores:
        inside = saved.origin.dataset == "inside"
        assert (saved.labels is not None) >= inside
        if inside:
            assert saved.labels.tolist() == classes.labels.tolist()
    assert all(e.labels is not None for e in found.examples)


def test_classes_are_known_for_all_images_where_few_are_attacked(tmp_path):
    command = ["audit", "--model", "digits-ce", "--detectors", "msp", "--eps", "none"]
    result = invoke(*command, "--limit", "40", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    found = read_folder(tmp_path)
    (accuracy,) = [r for r in found.rows if r.metric == "accuracy"]
    assert len(found.classes[0].labels) == accuracy.n_in > 40
    (inside,) = [s for s in found.scores if s.origin.dataset == "inside"]
    assert len(inside.labels) == len(inside.scores) == 40


def test_without_a_terminal_there_is_no_colour_and_no_progress(first):
    _, result = first
    assert "\x1b" not in result.output
    assert "\r" not in result.output
    assert "left" not in result.stderr


def test_a_settings_file_means_the_same_as_flags(files, first, tmp_path):
    settings = tmp_path / "audit.toml"
    settings.write_text(
        f"""
        model = ["{files / "net.safetensors"}"]
        inside = "npz:{files / "inside.npz"}"
        detectors = ["msp", "knn"]
        eps = ["linf:0.01", "0.05"]
        attack_options = {{ steps = 5 }}
        device = "cpu"
        [outside]
        stripes = "npz:{files / "stripes.npz"}"
        """
    )
    assert invoke("audit", str(settings), "--out", str(tmp_path / "out")).exit_code == 0
    assert lines(tmp_path / "out") == lines(first[0])
    more = ["--eps", "0.05", "--seed", "3", "--limit", "10", "--steps", "2"]
    result = invoke("audit", str(settings), "--out", str(tmp_path / "other"), *more)
    assert result.exit_code == 0
    manifest = json.loads((tmp_path / "other" / "manifest.json").read_text())
    assert manifest["settings"]["threats"] == ["linf:0.05"]
    assert manifest["settings"]["seed"] == 3
    assert manifest["settings"]["attack"]["steps"] == 2
    assert manifest["data"]["stripes"]["n"] == manifest["data"]["inside"]["n"] == 10
    assert manifest["hardware"]["device"] == "cpu"
    assert "note: stripes: used 10 of 30 images, evenly spaced\n" in result.stderr


def test_options_of_detectors_come_from_the_settings_file(files, tmp_path):
    settings = tmp_path / "audit.toml"
    settings.write_text("[options.knn]\nk = 7\n[options.pro_msp]\neps = 0\n")
    more = ["--detectors", "knn,pro_msp", "--eps", "none"]
    command, *rest = small_command(files, tmp_path / "out", *more)
    assert invoke(command, str(settings), *rest).exit_code == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["detectors"]["knn"]["settings"]["k"] == 7
    assert manifest["detectors"]["pro_msp"]["settings"]["eps"] == 0.0


def test_json_puts_rows_and_nothing_else_on_stdout(files, first, tmp_path):
    result = invoke(*small_command(files, tmp_path / "out", "--json"))
    assert result.exit_code == 0
    said = result.stdout.splitlines()
    assert said == lines(tmp_path / "out") == lines(first[0])
    assert all(Row(**json.loads(line)) for line in said)
    again = invoke(*small_command(files, tmp_path / "out", "--json"))
    assert again.stdout == result.stdout


def test_a_run_may_continue_with_another_batch_size(files, tmp_path):
    same = ["--detectors", "mahalanobis,vim", "--eps", "none"]
    for size in ("256", "5"):
        result = invoke(*small_command(files, tmp_path / "out", *same, "--batch-size", size))
        assert result.exit_code == 0, result.stderr


def test_a_clean_audit_says_that_nothing_was_attacked(files, tmp_path):
    result = invoke(*small_command(files, tmp_path / "out", "--eps", "none"))
    assert result.exit_code == 0
    assert "nothing attacked" in result.stdout
    assert "believe" not in result.stdout
    gated = invoke(*small_command(files, tmp_path / "out", "--eps", "none", "--fail-under", "0"))
    assert gated.exit_code == 3
    assert "nothing was attacked" in gated.stderr


@pytest.mark.parametrize(("bar", "code"), [("0", 0), ("0.9", 3)])
def test_fail_under_is_a_gate_for_machines(files, tmp_path, bar, code):
    few = ("--detectors", "msp", "--limit", "20", "--fail-under", bar)
    result = invoke(*small_command(files, tmp_path / "out", *few))
    assert result.exit_code == code
    assert ("gate: passed" in result.stderr) == (code == 0)
    assert ("gate: failed" in result.stderr) == (code == 3)
    assert "report: " in result.stdout


def test_a_number_that_is_not_believed_does_not_pass_the_gate(files, tmp_path):
    """One step is too few on KNN here: more of them still gain a lot, so its verdict is fail."""
    weak = ("--detectors", "knn", "--eps", "0.02", "--steps", "1", "--fail-under", "0")
    gated = invoke(*small_command(files, tmp_path / "out", *weak))
    assert gated.exit_code == 3
    assert "net knn" in gated.stderr


@pytest.mark.parametrize(
    "end",
    ["sys.exit(0)", "raise SystemExit", "raise KeyboardInterrupt", "raise typer.Exit(0)"],
)
@pytest.mark.parametrize("when", ["made", "called"])
def test_a_network_that_ends_the_process_does_not_pass_the_gate(
    files, tmp_path, monkeypatch, end, when
):
    code = f"""
import sys, typer
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 3)
        {end if when == "made" else "pass"}

    def forward(self, x):
        {end}
"""
    name = f"ends_{when}_{abs(hash(end))}"
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    command = small_command(files, tmp_path / "out", "--fail-under", "0")
    command[command.index("--model") + 1] = f"{name}:Net"
    result = invoke(*command)
    assert result.exit_code == (130 if "Keyboard" in end else 1)
    assert result.stderr.startswith("stopped: " if "Keyboard" in end else "error: ")


NETWORK = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(192, 3)

    def forward(self, x):
        if len(x) > 2:  # as more than the two images that try it out
            raise ValueError("my own mistake")
        return self.head(x.flatten(1))
"""


def test_a_traceback_of_the_users_code_stays_and_says_whose_it_is(files, tmp_path, monkeypatch):
    (tmp_path / "breaks.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    command = small_command(files, tmp_path / "out")
    command[command.index("--model") + 1] = "breaks:Net"
    result = invoke(*command)
    assert isinstance(result.exception, ValueError)
    (note,) = result.exception.__notes__
    assert note == f"this is raised by code that is not rood's: {tmp_path / 'breaks.py'}, line 11"


def test_a_fault_of_rood_asks_to_be_reported(monkeypatch):
    monkeypatch.setattr("rood.report.write_report", {}.__getitem__)
    result = invoke("report", "somewhere")
    assert isinstance(result.exception, KeyError)
    (note,) = result.exception.__notes__
    assert note.startswith(f"this is a fault of rood {rood.__version__}: please report it")


@pytest.mark.parametrize("how", ["full", "broken", "closed"])
def test_stdout_that_cannot_be_written_is_one_line(how):
    command = f"{shlex.join([*ROOD, 'list', 'attacks'])} "
    command += {"full": "> /dev/full", "broken": "| true", "closed": ">&-"}[how]
    if how == "broken":
        command = f"set -o pipefail; (sleep 0.2; {command.removesuffix('| true')}) | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=ENVIRONMENT)
    if how == "closed":  # there is nobody to tell
        assert (done.returncode, done.stderr) == (0, "")
        return
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: cannot write to stdout (")


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "rood", "--version"], capture_output=True, env=ENVIRONMENT
    )
    assert done.stdout.decode() == f"{rood.__version__}\n"


def test_report_writes_the_page_again(first):
    out, _ = first
    page = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    result = invoke("report", str(out))
    assert (result.exit_code, result.stdout) == (0, f"{out / 'report.html'}\n")
    assert (out / "report.html").read_bytes() == page


def test_a_terminal_shows_progress_with_time_left(files, tmp_path):
    ours, theirs = pty.openpty()
    command = [*ROOD, *small_command(files, tmp_path / "out", "--steps", "15")]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=ENVIRONMENT) as process:
        os.close(theirs)
        seen = read_all(ours)
    assert process.returncode == 0
    assert "loading images and fitting detectors" in seen
    assert re.search(r"\d+ % .*\d:\d\d:\d\d.*\d:\d\d:\d\d.* left .*net: msp", seen)
    assert "100 %" in seen
    assert "believe it?" in seen


def hand_made():
    """Two networks, a very long name, every verdict."""
    attacked = {"scenario": "pgd linf:0.1", "low": 0.1, "high": 0.2}
    for model, shift in (("digits-ce", 0.0), ("[red]\x1b[31m[/]", 0.3)):
        yield row(model=model, detector="", dataset="inside", metric="accuracy", value=0.987)
        for detector, verdict in (("msp", "pass"), ("relative_mahalanobis", "warn"), ("k", "fail")):
            who = {"model": model, "detector": detector}
            for dataset, value in (("near", 0.9), ("a-name-of-more-than-14-signs", 0.6)):
                yield row(**who, dataset=dataset, value=value, low=value - 0.1, high=0.95)
                for side, fall in (("outside", 0.3), ("inside", 0.35), ("both", 0.55)):
                    found = {"value": value - fall + shift, "verdict": verdict, "side": side}
                    yield row(**who, dataset=dataset, **attacked, **found)


def test_the_table_looks_as_it_did(capsys):
    rows = list(hand_made())
    for width in (100, 80, 60):
        table(rows, width)
    table([r for r in rows if r.scenario == "clean"], 100)
    shown = "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())
    if os.environ.get("ROOD_GOLDEN"):  # write it anew after a change on purpose
        GOLDEN.write_text(shown)
    assert shown == GOLDEN.read_text()
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 100
