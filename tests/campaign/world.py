"""The commands that are disturbed, their small files, and what two clean runs agree on."""

import hashlib
import importlib
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from campaign.forked import Ending, command, forked

_count = itertools.count()
DEVICE = ("--device", "cpu")


@dataclass
class World:
    """Small files, the commands that write folders, and their undisturbed results."""

    root: Path
    expected: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def files(self) -> Path:
        return self.root / "files"

    def arguments(self, name: str) -> list[str]:
        """The command line; it writes the folder `out` of the folder it runs in."""
        net, inside, far = (
            str(self.files / f) for f in ("net.safetensors", "inside.npz", "far.npz")
        )
        small = ["--limit", "96", *DEVICE, "--out", "out"]
        images = ["--inside", inside]
        if name == "receipt":  # an audit whose receipt is the folder `out`
            *audit, _ = self.arguments("audit")
            return [*audit, "audit", "--receipt", "out"]
        return {
            "audit": [
                "audit",
                "--model",
                net,
                *images,
                "--outside",
                f"far={far}",
                "--detectors",
                "knn",
                "--eps",
                "0.05",
                "--attack",
                "pgd",
                "--steps",
                "2",
                *small,
            ],
            "fit": ["fit", "--model", net, *images, "--detector", "knn", *DEVICE, "--out", "out"],
            "attack": [
                "attack",
                "--model",
                net,
                *images,
                "--images",
                far,
                "--attack",
                "pgd",
                "--steps",
                "2",
                "--limit",
                "6",
                "--batch-size",
                "3",
                *DEVICE,
                "--out",
                "out",
            ],
            "train": [
                "train",
                "--data",
                f"npz:{inside}",
                "--backbone",
                "small_cnn",
                "--epochs",
                "2",
                "--batch-size",
                "60",
                *DEVICE,
                "--out",
                "out",
            ],
            "reproduce": ["reproduce", *REPRODUCED, *DEVICE, "--out", "out"],
        }[name]

    def run(
        self, name: str, folder: Path, *more: str, before: Callable[[], None] = lambda: None
    ) -> Ending:
        """Run one command in a folder, in a child; `before` prepares the child."""

        def work() -> None:
            os.chdir(folder)
            before()
            command([*self.arguments(name), *more])

        return forked(work)

    def learn(self, name: str) -> None:
        """Import what a command imports, so that its children need not do it each time."""

        def work() -> list[str]:
            os.chdir(folder)
            with suppress(SystemExit):
                command(self.arguments(name))
            return sorted(sys.modules)

        with self.folder() as folder:
            ended = forked(work)
        assert ended.how == "value", ended.said
        for module in ended.value:
            if module.partition(".")[0] in IMPORTED:
                importlib.import_module(module)

    @contextmanager
    def folder(self, filled_with: Path | None = None) -> Iterator[Path]:
        """A new folder to run in, removed at the end; `out` may be a copy of another."""
        place = self.root / "cases" / f"{os.getpid()}-{next(_count)}"
        place.mkdir(parents=True)
        if filled_with is not None:
            shutil.copytree(filled_with, place / "out", symlinks=True)
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def reference(self, name: str) -> Path:
        """The folder that an undisturbed run has written."""
        return self.root / "reference" / name / "out"

    def differs(self, name: str, out: Path) -> str:
        """The first thing in a folder that is not as undisturbed runs leave it; or nothing."""
        found, wanted = content(out), self.expected[name]
        for key, value in wanted.items():
            if found.get(key) != value:
                return f"{key}: {found.get(key, 'missing')[:80]} instead of {value[:80]}"
        return ""


IMPORTED = {"rood", "rood_papers", "jinja2", "markupsafe", "plotly", "rich", "PIL", "typer"}
MEASURED = {"seconds", "hardware", "peak_memory"}  # differ from run to run
REPRODUCED = ("liang/certificate", "--size", "tiny")
COMMANDS = ("audit", "fit", "attack", "train", "reproduce", "receipt")


def build(root: Path, names: tuple[str, ...] = COMMANDS, *, twice: bool = True) -> World:
    """Write the files, and run commands undisturbed; twice, to know what two runs agree on."""
    world = World(root)
    world.files.mkdir(parents=True)
    ended = forked(lambda: _write_files(world.files))
    assert ended.how == "value", ended.said
    for name in names:
        world.learn(name)
        runs = []
        for folder in (root / "reference" / name, root / "again" / name)[: 1 + twice]:
            folder.mkdir(parents=True)
            ended = world.run(name, folder)
            assert ended.how == "value", (name, ended)
            runs.append(content(folder / "out"))
        world.expected[name] = {k: v for k, v in runs[0].items() if runs[-1].get(k) == v}
    return world


def content(folder: Path) -> dict[str, str]:
    """What is in a folder, by file, and by entry in JSON files; temporary files do not count."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() or path.name == ".lock" or path.name.endswith(".part"):
            continue
        raw = path.read_bytes()
        if path.suffix == ".json":
            known = json.loads(raw)
            if name == "entry.json":  # hashes of whole files, whose headers have no fixed order
                known = {k: v for k, v in known.items() if k not in ("files", "sha256")}
            found |= {f"{name} {k}": v for k, v in _entries(known)}
        elif path.name == "parts.jsonl":
            found |= {
                f"{name} {k}": v for k, v in _entries([json.loads(x) for x in raw.splitlines()])
            }
        elif path.suffix == ".safetensors":
            found[name] = _tensors(raw)
        elif path.suffix != ".html":  # made from the rest
            found[name] = hashlib.sha256(raw).hexdigest()
        else:
            found[name] = "there"
    return found


def _tensors(raw: bytes) -> str:
    """A hash of the content of a safetensors file, whose header has no fixed order."""
    n = int.from_bytes(raw[:8], "little")
    head = json.dumps(json.loads(raw[8 : 8 + n]), sort_keys=True).encode()
    return hashlib.sha256(head + raw[8 + n :]).hexdigest()


def _entries(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping | list):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            if key not in MEASURED:
                yield from _entries(item, f"{place}.{key}")
    else:
        yield place, json.dumps(value)


def _write_files(root: Path) -> None:
    from small_audit import eight_bit, small_files
    from torch import save

    from rood import data
    from rood.models.checkpoint import load_state
    from rood.testing.world import blobs, stripes

    small_files(root)
    x, y = blobs(12, seed=9)
    np.savez(root / "far.npz", images=eight_bit(stripes(24, seed=6)))
    np.savez_compressed(root / "packed.npz", images=eight_bit(x), labels=y.numpy())
    shutil.copy(root / "net.safetensors", root / "other.safetensors")
    save(load_state(root / "net.safetensors"), root / "other.pth")
    _write_programs(root)
    names = []
    kinds = ("png", "jpeg", "webp", "tiff", "gif", "png")
    for i, pixels in enumerate(eight_bit(x[:6])):
        place = root / "pictures" / "abc"[i % 3] / f"{i}.{kinds[i]}"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.transpose(1, 2, 0)).save(place)
        names.append(f"{place.relative_to(root)} {i % 3}\n")
    (root / "list.txt").write_text("".join(names))
    (root / "audit.toml").write_text(AUDIT.replace("FILES", str(root)))
    (root / "train.toml").write_text(TRAIN.replace("FILES", str(root)))
    os.environ["ROOD_CACHE"] = str(root.parent / "cache")
    data.load(f"folder:{root / 'pictures'}")


def _write_programs(root: Path) -> None:
    import torch

    net, x = torch.nn.Linear(4, 3).eval(), torch.zeros(2, 4)
    torch.export.save(torch.export.export(net, (x,)), root / "program.pt2")
    torch.jit.trace(net, x).save(root / "program.pt")


AUDIT = """model = ["FILES/net.safetensors"]
inside = "npz:FILES/inside.npz"
detectors = ["msp", "knn"]
eps = ["linf:0.05", "l2:0.5"]
attack = "pgd"
limit = 96
size = "8"
seed = 3
device = "cpu"
skip_bad = true
mean = []
batch_size = 20
[outside]
far = "npz:FILES/far.npz"
[options.knn]
k = 5
[attack_options]
steps = 2
restarts = 1
"""
TRAIN = """data = "folder:FILES/pictures"
outliers = "procedural:noise,n=20"
unseen = ["npz:FILES/far.npz"]
backbone = "small_cnn"
size = 8
mean = [0.5, 0.5, 0.5]
std = [0.2, 0.2, 0.2]
skip_bad = false
[objective]
name = "aloe"
eps = 0.03
[settings]
epochs = 2
batch_size = 60
lr = 0.1
seed = 1
"""
