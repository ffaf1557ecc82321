"""Claims: a fit's memory does not grow with the training set; that of KNN grows by its bank, once.

10 thousand to a million training features, streamed through the public `fit`, each fit in a process
of its own, whose largest resident size counts (Linux only). pytorch-ood beside, if installed.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measure import PEERS, Claim, Point, apart, report
from rood.detectors import registry
from rood.models.wrap import wrap
from rood.seeds import generator

D, CLASSES, BATCH = 512, 10, 2048
SIZES = (10_000, 100_000, 1_000_000)
THEIRS = {
    "mahalanobis": "Mahalanobis",
    "relative_mahalanobis": "RMD",
    "vim": "ViM",
    "knn": "KNN",
}
BARS = dict.fromkeys(THEIRS, 0.1) | {"knn": 1.15}  # memory gained, as a share of the features' own


class Stream:
    """So many random images whose pixels are the features, never all at once in memory."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        g = generator(0, "features")
        for start in range(0, self.n, BATCH):
            size = min(BATCH, self.n - start)
            yield torch.rand(size, 1, 1, D, generator=g), torch.arange(size) % CLASSES


def network() -> nn.Sequential:
    head = nn.Linear(D, CLASSES)
    with torch.no_grad():
        for values in (head.weight, head.bias):
            values.normal_(generator=generator(0, "head"))
    return nn.Sequential(nn.Flatten(), head)


def ours(name: str) -> Any:
    return registry.get(name)(wrap(network()))


def theirs(name: str) -> Any:
    from benchmarks.peers.parity import load_peer

    encoder, head = network()
    options = {"d": D // 2, "w": head.weight, "b": head.bias} if name == "vim" else {}
    return getattr(load_peer(), THEIRS[name])(encoder, **options)


def fit(library: str, name: str, n: int) -> Point:
    """In this process, which should do nothing else: its memory is what it had at its fullest."""
    detector = {"rood": ours, "pytorch-ood": theirs}[library](name)
    before, start = _megabytes(), time.perf_counter()
    detector.fit(Stream(n))
    took, memory = time.perf_counter() - start, _megabytes() - before
    row = {"library": library, "detector": name, "images": n}
    return row | {"seconds": round(took, 3), "megabytes": round(memory, 1)}


def _megabytes(what: str = "VmHWM") -> float:
    """Not getrusage, which counts what the parent had in memory when it started this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 2**10


def beside_or_none(library: str, name: str, n: int) -> Point | None:
    """`fit` in a process of its own; None where the other library is missing or fails."""
    python = PEERS if library == "pytorch-ood" else sys.executable
    try:
        return apart("fitting", library, name, n, python=python)
    except (OSError, subprocess.CalledProcessError):
        if library == "rood":
            raise
        return None  # not installed, or killed for its memory


def kept(points: list[Point]) -> float:
    """Memory gained from the first to the last, as a share of what the features alone take."""
    first, last = points[0], points[-1]
    size = (last["images"] - first["images"]) * D * 4 / 2**20
    return (last["megabytes"] - first["megabytes"]) / size


def claims(
    sizes: tuple[int, ...] = SIZES, names: tuple[str, ...] = tuple(THEIRS), beside: bool = True
) -> list[Claim]:
    made = []
    for name in names:
        libraries = ("rood", "pytorch-ood") if beside else ("rood",)
        found = [beside_or_none(library, name, n) for n in sizes for library in libraries]
        points = tuple(p for p in found if p is not None)
        detail = f"{sizes[0]:,} to {sizes[-1]:,} x {D} features"
        title = f"{name} fit: memory gained / features"
        gained = kept([p for p in points if p["library"] == "rood"])
        made.append(Claim(title, gained, BARS[name], 1, 0.0, detail, points=points))
    return made


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(json.dumps(fit(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
    else:
        sys.exit(report("fitting", claims()))
