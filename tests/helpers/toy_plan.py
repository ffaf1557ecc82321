"""A plan on the toy world that runs in a second or two: no page, few images, few tasks."""

import json

import numpy as np
from safetensors.numpy import load_file
from toy_audit import toy_case

from rood.attacks import PGD
from rood.data.base import ImageSet
from rood.evaluation.plan import Plan
from rood.evaluation.run import run
from rood.threat import Linf

N = 20  # images per set
BATCH = 12  # two tasks per set


def toy_plan(case=None, **changes):
    """Two detectors; one threat; one OOD set."""
    case = case or toy_case()
    x, y = case.inside
    usual = {
        "detectors": {"model": {n: case.detectors[n] for n in ("msp", "knn")}},
        "calibrate": ImageSet("calibrate", case.calibrate[:N]),
        "inside": ImageSet("inside", x[:N], y[:N]),
        "outside": {"grey": ImageSet("grey", case.outside["grey"][:N])},
        "threats": [Linf(0.05)],
        "attack": PGD(steps=3),
        "sides": ("outside",),
        "batch_size": BATCH,
    }
    return Plan(**usual | changes)


def carried_out(plan, out, engine=None):
    for _ in run(plan, out, engine=engine):
        pass
    return out


def manifest(out):
    return json.loads((out / "manifest.json").read_text())


def assert_same(one, other):
    """The same rows to the byte, the same arrays, and no leftover files."""
    assert (one / "rows.jsonl").read_bytes() == (other / "rows.jsonl").read_bytes()
    names = [sorted(p.relative_to(f) for p in f.rglob("*.safetensors")) for f in (one, other)]
    assert names[0] == names[1]
    for name in names[0]:
        a, b = load_file(one / name), load_file(other / name)
        assert a.keys() == b.keys()
        for key in a:
            np.testing.assert_array_equal(a[key], b[key], err_msg=f"{name}: {key}")
    assert not (one / "units").exists()
    assert not list(one.rglob("*.part"))
