"""The example for object detectors runs as it is, and its classifier is the detector's own."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import rood
from rood.attacks import PGD
from rood.detectors import MSP
from rood.goals import look_out
from rood.threat import Linf

transformers = pytest.importorskip("transformers", reason="needs transformers: rood[hub]")
EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "boxes.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("boxes_example", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tiny_detr():
    backbone = transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 8],
        depths=[1, 1],
        layer_type="basic",
        out_features=["stage2"],
    )
    config = transformers.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        num_queries=6,
        num_labels=4,
    )
    return transformers.DetrForObjectDetection(config).eval()


@pytest.fixture(params=["yolos", "detr"])
def detector(request, example):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = example.tiny_yolos() if request.param == "yolos" else tiny_detr()
        if request.param == "detr":
            made.model.query_position_embeddings.weight.data.normal_(std=5)
        *_, bias = made.class_labels_classifier.parameters()
        for p in made.class_labels_classifier.parameters():  # so that boxes differ in class
            p.data.normal_(std=0.5)
        bias.data[-1] += 3  # "no object" is the likeliest class of most boxes
    return made


@pytest.fixture
def model(example, detector):
    return rood.wrap(
        example.BoxClassifier(detector), head="head", mean=example.MEAN, std=example.STD
    )


@pytest.fixture
def x():
    return torch.rand(5, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def test_its_logits_are_those_of_the_detectors_surest_box(example, detector, model, x):
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (example.MEAN, example.STD))
    with torch.no_grad():
        theirs = detector(pixel_values=(x - mean) / std).logits
        ours = model(x)
    assert ours.features.ndim == 2
    assert theirs.std(dim=1).amin() > 1e-3  # the boxes of an image do differ
    for z, boxes in zip(ours.logits, theirs, strict=True):
        sure = max(boxes, key=lambda box: float(box.softmax(dim=0)[:-1].max()))
        torch.testing.assert_close(z, sure[:-1], rtol=1e-4, atol=1e-4)


def test_an_attack_climbs_through_the_whole_detector(model, x):
    goal = look_out(MSP(model))
    moved = PGD(steps=5)(goal, x, Linf(4 / 255), torch.Generator().manual_seed(0))
    assert (goal(moved) > goal(x)).all()


def test_crops_are_the_pixels_of_the_boxes(example, detector, monkeypatch):
    image = torch.arange(64.0).div(64).expand(1, 3, 64, 64).contiguous()  # brighter to the right
    found = example.crops(detector, image, side=32, count=3)
    assert found.shape == (3, 3, 32, 32)
    boxes = torch.tensor([[[0.75, 0.5, 0.5, 0.5]] * 6])
    said = transformers.utils.ModelOutput(logits=torch.zeros(1, 6, 5), pred_boxes=boxes)
    (right,) = example.crops(lambda **_: said, image, side=32, count=1)
    torch.testing.assert_close(right, image[0, :, 16:48, 32:])


@pytest.mark.parametrize(
    ("centre", "size", "want"),
    [(0.5, 0.5, (16, 48)), (0.0, 0.1, (0, 8)), (1.0, 0.01, (56, 64)), (0.9, 1.0, (25, 64))],
)
def test_a_box_stays_inside_and_has_eight_pixels(centre, size, want, example):
    found = example.extent(centre, size, 64)
    assert (found.start, found.stop) == want


@pytest.mark.slow
def test_the_script_audits_boxes_of_a_tiny_detector(tmp_path):
    command = [sys.executable, str(EXAMPLE)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    pattern = r"(msp|energy|knn), (\w+) attacked: AUROC (\d\.\d\d), (pass|warn|fail|-)"
    found = {(m[1], m[2]): float(m[3]) for line in lines if (m := re.match(pattern, line))}
    assert len(found) == 12
    for name in ("msp", "energy", "knn"):
        assert found[name, "both"] < found[name, "none"] - 0.1
    assert "fail" not in done.stdout  # the attack can be believed
    assert lines[-1] == "report: box-audit/report.html"
    assert "other objects" in (tmp_path / "box-audit" / "report.html").read_text()
