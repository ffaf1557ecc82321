"""The same options on every command, and settings files that name them alike."""

import json
import typing

import pytest
import typer.main
from bad_input import flat_folder
from small_audit import small_command, small_files
from typer.testing import CliRunner

from rood import api
from rood.cli import app
from rood.errors import RoodWarning
from rood.evaluation.settings import KEYS, OF_ATTACK, AuditSettings, read_settings

COMMANDS = typer.main.get_command(app).commands
NETWORK = {"--model", "--weights", "--mean", "--std", "--size", "--device", "--trust"}
LOADS = ["attack", "audit", "doctor", "fit"]  # a network, with images for it
# about the run and not about what is measured; and settings that only a file can hold
OF_THE_RUN = {"out", "engine", "workers", "address", "offline", "fail_under", "json", "help"}
OF_THE_RUN |= {"quiet", "junit", "sarif", "summary", "write_config", "mlflow", "wandb", "budget"}
OF_THE_RUN |= {"log_to", "receipt", "by", "licence"}
OF_FILES = {"options", "attack_options", "attacks"}


def options(command):
    """Every option of a command, with its parameter."""
    found = {}
    for parameter in COMMANDS[command].params:
        if parameter.param_type_name == "option":
            found |= {name: parameter for name in parameter.opts if name.startswith("--")}
    return found


@pytest.mark.parametrize("command", LOADS)
def test_every_command_that_loads_a_network_has_its_options(command):
    assert NETWORK | {"--inside", "--train", "--skip-bad"} <= set(options(command))


def test_a_guard_knows_the_normalisation_of_its_network():
    assert {"--model", "--weights", "--device", "--trust"} <= set(options("score"))
    assert not {"--mean", "--std", "--size"} & set(options("score"))


@pytest.mark.parametrize("option", sorted((NETWORK | {"--inside", "--skip-bad"}) - {"--train"}))
def test_an_option_means_the_same_everywhere(option):
    assert len({options(command)[option].help for command in LOADS}) == 1


def test_files_name_settings_as_the_options_do():
    fields = {KEYS.get(name, name) for name in typing.get_type_hints(AuditSettings)}
    given = {name.removeprefix("--").replace("-", "_") for name in options("audit")}
    assert (fields | set(OF_ATTACK)) - OF_FILES - {"budget"} == given - OF_THE_RUN


def test_a_file_is_read_as_the_options_are(tmp_path):
    path = tmp_path / "audit.toml"
    path.write_text("model = ['a']\neps = ['l2:0.5']\nsteps = 5\nlimit = 0\n")
    wanted = AuditSettings(
        models=("a",), threats=("l2:0.5",), attack_options={"steps": 5}, limit=None
    )
    assert read_settings(path) == wanted
    path.write_text("models = ['a']\nthreats = ['l2:0.5']\nattack_options = {steps = 5}\nlimit = 0")
    with pytest.warns(RoodWarning) as caught:
        assert read_settings(path) == wanted
    assert [str(w.message) for w in caught] == [
        "audit.toml: models is called model now, as the option --model is",
        "audit.toml: threats is called eps now, as the option --eps is",
    ]


HARD = AuditSettings(
    models=("a b.safetensors", "hf:x/y"),
    mean=(0.1, 0.2),
    inside='folder:"quoted" \\ and \x7f\n ünïcode 😀',
    outside={"d t.d": "folder:x", "near": "digits:near"},
    groups={"*": "folder"},
    threats=(),
    attack="pgd",
    attack_options={"steps": 5, "step": 1e-05, "random_start": True},
    options={"knn": {"k": 5}, "mahalanobis": {"pooling": "pooled"}},
    limit=None,
    skip_bad=True,
    batch_size=64,
)


@pytest.mark.parametrize("settings", [AuditSettings(), HARD], ids=["defaults", "all"])
def test_settings_survive_a_file(tmp_path, settings):
    path = tmp_path / "audit.toml"
    path.write_bytes(settings.to_toml().encode())
    assert read_settings(path) == settings


def test_a_file_of_settings_gives_the_same_plan(tmp_path):
    files = small_files(tmp_path)
    command = small_command(files, tmp_path / "out", "--limit", "20", "--seed", "3")
    done = CliRunner().invoke(app, [*command, "--write-config", str(tmp_path / "a.toml")])
    assert done.exit_code == 0, done.output
    assert f"rood audit {tmp_path / 'a.toml'}" in done.stdout
    assert not (tmp_path / "out").exists()
    again = api.plan(read_settings(tmp_path / "a.toml"), tmp_path / "out")
    assert CliRunner().invoke(app, command).exit_code == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert json.loads(json.dumps(again.settings())) == manifest["settings"]


def test_attacks_and_guards_take_networks_from_anywhere(tmp_path, monkeypatch):
    files = small_files(tmp_path)
    (tmp_path / "own_for_options.py").write_text(
        "from rood.models import backbones\n"
        "make = lambda: backbones.create('small_cnn', classes=3, channels=3, width=4)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    inside, stripes = (str(files / f"{n}.npz") for n in ("inside", "stripes"))
    network = ["--model", "own_for_options:make", "--weights", str(files / "net.safetensors")]
    network += ["--mean", "0.4,0.4,0.4", "--std", "0.25,0.25,0.25", "--inside", inside]
    crafted = ["--images", stripes, "--eps", "0.02", "--limit", "4"]
    crafted += ["--attack", "pgd", "--steps", "2"]
    done = CliRunner().invoke(app, ["attack", *network, *crafted, "--out", str(tmp_path / "a")])
    assert done.exit_code == 0, done.output
    sized = [*network, "--size", "6"]
    done = CliRunner().invoke(app, ["fit", *sized, "--out", str(tmp_path / "guard")])
    assert done.exit_code == 0, done.output
    assert '"shape": [' in (tmp_path / "guard" / "guard.json").read_text().replace("\n", "")
    flat_folder(tmp_path / "pictures")
    score = ["score", str(tmp_path / "guard"), f"folder:{tmp_path / 'pictures'}", *network[:4]]
    done = CliRunner().invoke(app, score)
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == 9
