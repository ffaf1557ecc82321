"""`rood doctor`: what it prints, its exit code, and the command that it proposes."""

import json
import shlex

import pytest
from typer.testing import CliRunner

from rood.cli import app
from rood.evaluation.diagnosis import registry

IMAGES = ("--inside", "inside.npz", "--outside", "s=stripes.npz")
NET = ("--model", "net.safetensors")


def asked(*words):
    return CliRunner().invoke(app, ["doctor", *words])


def test_an_honest_setup_gets_the_command_of_its_audit(here):
    said = asked(*NET, *IMAGES, "--eps", "0.02", "--detectors", "msp", "--device", "cpu")
    assert said.exit_code == 0, said.output
    *lines, last = said.stdout.splitlines()
    assert {line.split()[1] for line in lines[:-1]} == set(registry.names()) - {"neighbours"}
    assert {line.split()[0] for line in lines[:-1]} == {"ok", "warn"}
    assert ", 0 failed, " in lines[-1]
    same = f"{shlex.join([*NET, *IMAGES])} --detectors msp --eps 0.02 --device cpu"
    assert last == f"next: rood audit {same}"
    words = [*shlex.split(last)[2:], "--steps", "1", "--out", "o"]
    assert CliRunner().invoke(app, words).exit_code == 0


def test_a_failed_check_is_exit_code_1_and_no_command(here, monkeypatch):
    (here / "swapped_net.py").write_text(
        "from small_audit import small_model\n"
        "def make():\n"
        "    net = small_model().net\n"
        "    for p in (net.head.weight, net.head.bias):\n"
        "        p.data.copy_(p.data.roll(1, dims=0).clone())\n"
        "    return net\n"
    )
    monkeypatch.syspath_prepend(str(here))
    own = ("--model", "swapped_net:make", "--mean", "0.4,0.4,0.4", "--std", "0.25,0.25,0.25")
    said = asked(*own, *IMAGES, "--json")
    assert said.exit_code == 1
    told = json.loads(said.stdout)
    assert told["next"] == ""
    failed = {one["check"] for one in told["results"] if one["status"] == "fail"}
    assert {"class_order", "accurate"} <= failed  # of three colours, BGR helps a little too
    said = asked(*own, *IMAGES)
    assert said.exit_code == 1
    assert "next: repair what failed" in said.stdout


@pytest.mark.parametrize(
    ("words", "because"),
    [
        ((*NET, "--inside", "no/such", "--outside", "stripes.npz"), "'no/such' does not exist"),
        ((*NET, "--inside", "inside.npz"), "expected --outside"),
        (("--model", "no.safetensors", *IMAGES), "no.safetensors"),
        ((*NET, *IMAGES, "--detectors", "mps"), "did you mean 'msp'"),
        ((*NET, *IMAGES, "--eps", "0"), "a budget above 0"),
        ((*NET, "--inside", "grey.npz", "--outside", "stripes.npz"), "at least 20"),
    ],
)
def test_what_would_stop_an_audit_is_a_failed_check(here, words, because):
    said = asked(*words)
    assert said.exit_code == 1
    assert isinstance(said.exception, SystemExit)
    (line,) = [line for line in said.stdout.splitlines() if line.startswith("fail")]
    assert because in line
