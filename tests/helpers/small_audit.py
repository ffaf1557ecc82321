"""A trained network of a few weights with images for it on disk: an audit in under a second."""

import json
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from typer.testing import CliRunner

from rood.cli import app
from rood.models import backbones, checkpoint
from rood.models.wrap import wrap
from rood.testing.world import CLASSES, SIZE, blobs, stripes

MEAN, STD = (0.4,) * 3, (0.25,) * 3


def small_files(root: Path) -> Path:
    """root with net.safetensors, inside.npz (labelled), stripes.npz and grey.npz."""
    checkpoint.save(small_model(), root / "net.safetensors", small_card())
    x, y = blobs(240, seed=5)
    np.savez(root / "inside.npz", images=eight_bit(x), labels=y.numpy())
    np.savez(root / "stripes.npz", images=eight_bit(stripes(30, seed=6)))
    grey = torch.rand(30, 1, 1, 1, generator=torch.Generator().manual_seed(7))
    noise = 0.05 * torch.rand(30, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(8))
    np.savez(root / "grey.npz", images=eight_bit(0.9 * grey + noise))
    return root


def small_model():
    x, y = blobs(120, seed=4)
    net = backbones.create("small_cnn", classes=CLASSES, channels=3, width=4)
    optimizer = torch.optim.Adam(net.train().parameters(), lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        cross_entropy(net((x - MEAN[0]) / STD[0]), y).backward()
        optimizer.step()
    return wrap(net, head="head", mean=MEAN, std=STD)


def small_card(**more):
    return {"shape": [3, SIZE, SIZE], "classes": ["red", "green", "blue"]} | more


def eight_bit(x):
    return (x * 255).round().to(torch.uint8).numpy()


def small_command(files: Path, out: Path, *more: str) -> list[str]:
    """`rood audit` of two detectors on those files, at two budgets."""
    net, inside, outside = (files / n for n in ("net.safetensors", "inside.npz", "stripes.npz"))
    what = ["--model", str(net), "--inside", str(inside), "--outside", str(outside)]
    how = ["--detectors", "msp,knn", "--eps", "0.01,0.05", "--steps", "5", "--device", "cpu"]
    return ["audit", *what, *how, "--out", str(out), *more]


def audited(files, *options, model=None, inside="inside.npz", eps="0.02"):
    what = ["--model", model or str(files / "net.safetensors"), "--inside", str(files / inside)]
    how = ["--outside", f"s={files / 'stripes.npz'}", "--eps", eps, "--device", "cpu"]
    how += [] if "--time" in options else ["--limit", "12"]
    return CliRunner().invoke(app, ["audit", *what, *how, *options])


def manifest(out):
    return json.loads((out / "manifest.json").read_text())
