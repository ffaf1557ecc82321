"""Claims: an audit's cost grows with detectors, images and steps, and no faster than they do.

Cost is the process's own time, which a busy machine disturbs little, and, without any noise, images
passed through the network. How the time shrinks with workers: `benchmarks.ray_engine`.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.bare import random_images
from benchmarks.measure import Claim, Point, report
from rood.api import audit
from rood.attacks import PGD
from rood.detectors import Detector, Energy
from rood.models.backbones import create
from rood.models.wrap import wrap
from rood.threat import Linf

BAR = 1.1  # cost per item at the largest size, over that at the smallest


class Size(NamedTuple):
    """One audit."""

    detectors: int = 1
    images: int = 64
    steps: int = 10


AXES = {
    "detectors": [Size(detectors=n) for n in (1, 2, 4, 8)],
    "images": [Size(images=n) for n in (64, 128, 256, 512)],
    "steps": [Size(steps=n) for n in (10, 20, 40, 80)],
}


def alike(n: int, depth: int) -> dict[str, Detector]:
    """Detectors that cost the same: one with surrogates is attacked more than once."""
    model = wrap(create("wide_resnet", depth=depth, widen=1, classes=10))
    return {f"energy {t}": Energy(model, temperature=float(t)) for t in range(1, n + 1)}


def measured(size: Size, depth: int) -> Point:
    detectors = alike(size.detectors, depth)
    model = next(iter(detectors.values())).model
    inside, outside = (random_images(size.images, name) for name in ("inside", "outside"))
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.perf_counter(), time.process_time()
        audit(
            model,
            detectors,
            inside=inside,
            outside={"noise": outside},
            calibrate=random_images(64, "calibrate"),
            threats=[Linf(2 / 255)],
            attack=PGD(steps=size.steps),
            out=folder,
            batch_size=64,
        )
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        cost = json.loads((Path(folder) / "manifest.json").read_text())["cost"]
    passes = {"forwards": int(cost["forwards"]), "backwards": int(cost["backwards"])}
    return size._asdict() | {"seconds": round(wall, 3), "cpu_seconds": round(cpu, 3)} | passes


def claims(axes: dict[str, list[Size]] = AXES, depth: int = 10) -> list[Claim]:
    measured(Size(images=32, steps=1), depth)  # warm: imports, the page's template
    made = []
    for axis, sizes in axes.items():
        points = tuple(measured(size, depth) for size in sizes)
        name = f"audit: cost for each of the {axis}, last / first"
        value = cost_of_one(points[-1], axis) / cost_of_one(points[0], axis)
        detail = f"WRN-{depth}-1, PGD, two sides"
        made.append(Claim(name, value, BAR, 1, 0.0, detail, points=points))
    return made


def cost_of_one(point: Point, axis: str) -> float:
    return point["cpu_seconds"] / point[axis]


if __name__ == "__main__":
    sys.exit(report("growth", claims()))
