"""What runs code of others when it is loaded is refused unless the caller trusts it."""

import json
import sys
import zipfile
from types import ModuleType

import pytest
import torch
from refusals import refused
from torch import nn

from rood.errors import CheckpointError, ConfigError, TrustError
from rood.evaluation.settings import AuditSettings, read_settings, refuse_code
from rood.models.load import load_network


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).eval()


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("pt2") / "net.pt2"
    shapes = ({0: torch.export.Dim("b")},)
    x = torch.rand(2, 3, 8, 8)
    torch.export.save(torch.export.export(net(), (x,), dynamic_shapes=shapes), path)
    return path


def evil(program, path, text):
    """The program with `text` in place of every size."""

    def change(value):
        if isinstance(value, dict):
            return {k: text if k == "expr_str" else change(v) for k, v in value.items()}
        return [change(v) for v in value] if isinstance(value, list) else value

    with zipfile.ZipFile(program) as old, zipfile.ZipFile(path, "w") as new:
        for part in old.namelist():
            content = old.read(part)
            if "/models/" in part:
                content = json.dumps(change(json.loads(content))).encode()
            new.writestr(part, content)
    return str(path)


def test_an_exported_program_needs_trust(program):
    refused(TrustError, "expected --trust (trust=True in Python)", load_network, str(program))
    model, _ = load_network(str(program), trust=True)
    assert model.classes == 3


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "__import__('pathlib').Path('{}').touch()",
        "exec(chr(49))",
        "Symbol('s0').__class__",
        "[Symbol('s0') for s in Symbol('t')]",
        "Symbol('open(1)')",
    ],
)
def test_text_in_place_of_a_size_never_runs(program, tmp_path, text, trust):
    mark = tmp_path / "ran"
    path = evil(program, tmp_path / "evil.pt2", text.format(mark))
    with pytest.raises(CheckpointError, match="in place of the size of a tensor"):
        load_network(path, trust=trust)
    assert not mark.exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_needs_trust(tmp_path):
    path = str(tmp_path / "net.pt")
    torch.jit.trace(net(), torch.rand(2, 3, 8, 8)).save(path)
    refused(TrustError, "is a program that torch runs", load_network, path, shape=(3, 8, 8))
    model, _ = load_network(path, shape=(3, 8, 8), trust=True)
    assert model.classes == 3


@pytest.mark.parametrize("name", ["hf-hub:a/b", "HF-HUB:a/b", "hf_hub:a/b", "local-dir:x"])
def test_timm_from_other_places_needs_trust(name):
    refused(TrustError, "timm unpickles", load_network, f"timm:{name}")


def test_a_hugging_face_model_with_its_own_code_needs_trust(tmp_path, monkeypatch):
    pytest.importorskip("transformers", reason="needs transformers: rood[hub]")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    own = {"AutoConfig": "own.C", "AutoModelForImageClassification": "own.M"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": own}))
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    refused(TrustError, "would run its Python files", load_network, f"hf:{tmp_path}")
    assert not (tmp_path / "ran").exists()


def test_a_settings_file_that_names_python_code_needs_trust(tmp_path):
    path = tmp_path / "audit.toml"
    path.write_text('model = ["own_nets:make"]')
    refused(TrustError, "--model own_nets:make", refuse_code, read_settings(path), path)
    refuse_code(read_settings(path, trust=True), path)
    path.write_text("trust = true")
    refused(ConfigError, "cannot trust itself", read_settings, path)


def test_a_function_that_the_caller_names_needs_nothing(monkeypatch):
    module = ModuleType("own_nets")
    module.make = net
    monkeypatch.setitem(sys.modules, "own_nets", module)
    model, _ = load_network("own_nets:make", shape=(3, 8, 8))
    assert model.classes == 3
    assert AuditSettings().trust is False
