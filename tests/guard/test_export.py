"""The whole graph in one file says what the guard says, and what no graph can hold is refused."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from refusals import refused
from torch import nn

import rood
from rood import data, zoo
from rood.data.base import SHARES
from rood.detectors import (
    MSP,
    ODIN,
    PRO,
    Ensemble,
    Gram,
    LayeredMahalanobis,
    LowResolution,
    registry,
)
from rood.detectors.base import Detector
from rood.errors import CapabilityError, InputError
from rood.guard.export import OUTPUTS, why_not
from rood.guard.guard import Guard
from rood.models.wrap import wrap
from rood.testing._support import as_in_production, example

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "guard.md"
REASONS = {
    "gradient": "needs a gradient for every image",
    "eigenvectors": "has no eigenvectors",
    "file": "compresses every image as PNG",
}
SMALLER = {"gram": lambda m: Gram(m, orders=2, layers=("layers.2", "layers.8"))}  # 20 s with all


@pytest.fixture(scope="module")
def digits():
    """A network, images to fit and to calibrate on, and some from inside and outside."""
    parts = data.split(data.load("digits:inside"), "", **SHARES)
    inside, outside = parts["test"].thin(100), data.load("digits:near", limit=100)
    x = torch.cat([inside.pixels(), outside.pixels()])
    return zoo.load("digits-ce"), parts["fit"].thin(400), parts["calibrate"], x


def guarded(make, digits):
    model, fit, calibrate, _ = digits
    detector = make(model).eval().fit(fit.batches(128))
    classes = [f"class {i}" for i in range(detector.model.classes)]
    return Guard.calibrated(detector, calibrate.batches(128), classes=classes)


def made(name):
    return SMALLER.get(name) or example(registry.get(name))


def table():
    """The page's table, {detector: {kind: "yes" or "no: reason"}}."""
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", PAGE.read_text(), re.M)
    return {name: {".onnx": onnx, ".pt2": pt2} for name, onnx, pt2 in rows}


def exportable(kind):
    return [name for name, cells in table().items() if cells[kind] == "yes"]


def test_the_page_lists_every_detector():
    assert list(table()) == registry.names()


@pytest.mark.parametrize("name", registry.names())
def test_the_page_says_which_can_be_exported_and_why_not(name, world):
    detector = example(registry.get(name))(world.model).fit(world.train)
    for kind, cell in table()[name].items():
        reason = why_not(detector, kind)
        word = next((w for w, told in REASONS.items() if reason and told in reason), None)
        assert cell == ("yes" if reason is None else f"no: {word}")


def agree(found, decision, model, x, tolerance):
    logits, score, accept = found
    wanted = model(x).logits if model is not None else logits
    torch.testing.assert_close(logits, wanted, rtol=tolerance, atol=tolerance)
    off = (score - decision.score).abs() / (decision.score.abs() + decision.score.std())
    assert float(off.max()) <= tolerance
    assert torch.equal(accept, decision.accept)
    assert 0 < int(accept.sum()) < len(accept)


def some_slow(names, quick):
    """An export takes seconds: all but a few kinds of graph run among the slow tests."""
    return [n if n in quick else pytest.param(n, marks=pytest.mark.slow) for n in names]


QUICK = ("ensemble", "gen", "knn", "low_resolution", "mahalanobis", "msp", "vim")


@pytest.mark.parametrize("name", some_slow(exportable(".onnx"), QUICK))
def test_onnxruntime_decides_as_the_guard_does(name, digits, tmp_path):
    ort = pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'rood[onnx]'")
    pytest.importorskip("onnxscript", reason="needs onnxscript: pip install 'rood[onnx]'")
    guard, x = guarded(made(name), digits), digits[-1]
    file = tmp_path / "guard.onnx"
    with as_in_production():
        guard.export(file)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["batch", 1, 28, 28]
    run = lambda x: [torch.from_numpy(v) for v in session.run(list(OUTPUTS), {"images": x.numpy()})]
    network = None if name == "low_resolution" else guard.model
    agree(run(x), guard(x), network, x, 1e-4)
    torch.testing.assert_close(run(x[:1])[1], guard(x[:1]).score, rtol=1e-3, atol=1e-3)
    told = json.loads(session.get_modelmeta().custom_metadata_map["rood"])
    assert told["threshold"] == guard.threshold
    assert told["classes"] == list(guard.classes)


@pytest.mark.parametrize("name", some_slow(exportable(".pt2"), ("msp", "rankfeat")))
def test_an_exported_program_decides_as_the_guard_does(name, digits, tmp_path):
    guard, x = guarded(made(name), digits), digits[-1]
    file = tmp_path / "guard.pt2"
    with as_in_production():
        guard.export(file)
        found = torch.export.load(file).module()(x)
    agree(found, guard(x), None if name == "low_resolution" else guard.model, x, 1e-6)


@pytest.mark.parametrize("kind", [".onnx", ".pt2"])
@pytest.mark.parametrize("name", registry.names())
def test_what_no_graph_can_hold_is_refused_in_a_sentence(name, kind, digits, tmp_path):
    if table()[name][kind] == "yes":
        return
    guard = guarded(example(registry.get(name)), digits)
    refused(CapabilityError, "cannot be exported: ", guard.export, tmp_path / f"g{kind}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "make",
    [
        lambda m: Ensemble([ODIN(m), ODIN(m)]),
        lambda m: LowResolution(PRO.msp(m), size=(8, 8)),
        lambda m: LayeredMahalanobis(m, eta=0.01),
    ],
)
def test_a_gradient_deep_inside_is_found(make, world):
    detector: Detector = make(world.model).fit(world.train)
    assert "needs a gradient" in why_not(detector)


class Moody(nn.Module):
    """Takes another path for dark images, which no graph can follow."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(192, 3)

    def forward(self, x):
        return self.head(x.flatten(1) if x.mean() > 0 else x.flatten(1).abs())


def test_a_network_that_cannot_be_traced_is_named(world, tmp_path):
    detector = MSP(wrap(Moody()))
    guard = Guard.calibrated(detector, world.train)
    with as_in_production():
        words = "MSP on Moody cannot be exported: "
        refused(CapabilityError, words, guard.export, tmp_path / "guard.pt2")
    assert not list(tmp_path.iterdir())


def test_another_kind_of_file_is_refused(digits, tmp_path):
    guard = guarded(made("msp"), digits)
    refused(InputError, ".onnx or .pt2", guard.export, tmp_path / "guard.pt")


def test_the_folder_of_a_graph_is_made(digits, tmp_path):
    with as_in_production():
        guarded(made("msp"), digits).export(tmp_path / "new" / "guard.pt2")
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["guard.pt2"]


def test_a_missing_exporter_is_said_when_it_is_needed(digits, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    guard = guarded(made("msp"), digits)
    refused(CapabilityError, "pip install 'rood[onnx]'", guard.export, tmp_path / "guard.onnx")


def test_exporting_leaves_the_guard_as_it_was(digits, tmp_path):
    guard, x = guarded(made("knn"), digits), digits[-1]
    before = guard(x)
    with as_in_production():
        guard.export(tmp_path / "guard.pt2")
    assert all(torch.equal(a, b) for a, b in zip(before, guard(x), strict=True))
    assert guard.detector.model is digits[0]


def test_a_program_is_read_without_rood(digits, tmp_path):
    guard, x = guarded(made("energy"), digits), digits[-1]
    with as_in_production():
        guard.export(tmp_path / "guard.pt2")
    torch.save(x, tmp_path / "x.pt")
    code = (
        "import sys, torch; sys.modules['rood'] = None; "
        f"p = torch.export.load({str(tmp_path / 'guard.pt2')!r}).module(); "
        f"x = torch.load({str(tmp_path / 'x.pt')!r}, weights_only=True); "
        "print(int(p(x)[2].sum()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == int(guard(x).accept.sum())
    assert rood.Guard is Guard
