"""Claim: two workers with one thread each are at least 1.6 times as fast as one, on two cores.

The same audit of a minute or more, cluster start and rows included, by one worker and by two, in
turns; and once by the local engine, whose rows both must equal to the byte.
"""

import math
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.bare import random_images
from benchmarks.measure import Claim, Point, middle, report, seconds
from rood.attacks import PGD
from rood.detectors import MSP, Energy
from rood.evaluation.engines import Engine, Local
from rood.evaluation.engines.ray import Ray
from rood.evaluation.plan import Plan
from rood.evaluation.run import run
from rood.models.backbones import create
from rood.models.wrap import wrap
from rood.threat import Linf

BAR = 1.6
LEAST = 60.0  # seconds of one worker


def plan(n: int, depth: int, steps: int, batch: int) -> Plan:
    model = wrap(create("wide_resnet", depth=depth, widen=1, classes=10))
    return Plan(
        detectors={"model": {"msp": MSP(model), "energy": Energy(model)}},
        calibrate=random_images(64, "calibrate", 10),
        inside=random_images(n, "inside", 10),
        outside={"noise": random_images(n, "outside", 10)},
        threats=[Linf(2 / 255)],
        attack=PGD(steps=steps),
        batch_size=batch,
    )


def audited(what: Plan, engine: Engine) -> tuple[float, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        spent = seconds(lambda: list(run(what, out, engine=engine)))
        return spent, (out / "rows.jsonl").read_bytes()


def claims(
    n: int = 192,
    depth: int = 10,
    steps: int = 20,
    runs: int = 3,
    least: float = LEAST,
    batch: int = 32,
) -> list[Claim]:
    torch.set_num_threads(1)
    what = plan(n, depth, steps, batch)
    spent, rows = audited(what, Local())
    if spent < least:  # a faster machine gets more images
        n = batch * math.ceil(1.5 * n / batch * least / spent)  # the checks cost the same for more
        what = plan(n, depth, steps, batch)
        spent, rows = audited(what, Local())
    points: list[Point] = [{"engine": "local", "workers": 1, "seconds": round(spent, 1)}]
    ratios = []
    for _ in range(runs):
        took = {}
        for workers in (1, 2):
            took[workers], found = audited(what, Ray(workers=workers))
            assert found == rows, f"{workers} workers gave other rows than the local engine"
            points.append({"engine": "ray", "workers": workers, "seconds": round(took[workers], 1)})
        ratios.append(took[1] / took[2])
    detail = f"WRN-{depth}-1, PGD-{steps}, 2 detectors, {n} images per set, {batch} per unit"
    value, spread = middle(ratios)
    name = "audit: two workers / one, speed"
    return [Claim(name, value, BAR, runs, spread, detail, at_least=True, points=tuple(points))]


if __name__ == "__main__":
    sys.exit(report("ray-engine", claims()))
