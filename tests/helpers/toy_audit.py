"""An audit of three detectors on the toy world, which other tests look at from all sides."""

from types import SimpleNamespace

import torch
from safetensors import safe_open
from safetensors.numpy import load_file

import rood
from rood.attacks import PGD
from rood.data.base import ImageSet
from rood.detectors import KNN, MSP, ODIN
from rood.evaluation.tasks import SetAttack, join
from rood.testing import toy_world
from rood.testing.world import blobs
from rood.threat import L2, Linf

N = 40


THREATS = (Linf(0.07), L2(0.6), Linf(0.05))  # AUROCs fall to between 0 and 1, not to 0


ATTACK = PGD(steps=4)


def toy_case():
    """The toy world, three fitted detectors and the image sets of an audit."""
    world = toy_world()
    detectors = {"msp": MSP(world.model), "knn": KNN(world.model, k=5), "odin": ODIN(world.model)}
    for detector in detectors.values():
        detector.fit(world.train)
    grey = world.outside.mean(dim=1, keepdim=True).expand(-1, 3, -1, -1)
    return SimpleNamespace(
        model=world.model,
        train=world.train,
        detectors=detectors,
        inside=(world.inside[:N], torch.arange(N) % 3),
        outside={"stripes": world.outside[:N], "grey": 0.9 * grey[:N]},
        calibrate=blobs(N, seed=11)[0],
    )


def audited(case, out, **changes):
    usual = {"inside": case.inside, "outside": case.outside, "calibrate": case.calibrate}
    usual |= {"detectors": case.detectors, "threats": THREATS, "attack": ATTACK}
    return rood.audit(case.model, out=out, **(usual | changes))


def measured(detector, inside, outside, *, attack=None, threat=None, **more):
    """The arrays of both sides of one attack, ID first."""
    sets = {"inside": ImageSet("inside", inside), "outside": ImageSet("outside", outside)}
    sides = []
    for role, other in (("inside", "outside"), ("outside", "inside")):
        set_attack = SetAttack(
            detector,
            sets[role],
            role,
            attack or PGD(steps=20),
            threat or Linf(0.05),
            purpose=("d", role),
            seed=0,
            **({"batch_size": 64, "other_side": sets[other]} | more),
        )
        sides.append(join([part for part, _ in set_attack.run()]))
    return sides


def facts(path):
    with safe_open(path, framework="numpy") as file:
        return file.metadata()


def scores(results, *about):
    """The file of scores that says it is about this detector, dataset and condition."""
    for path in (results.folder / "scores").rglob("*.safetensors"):
        f = facts(path)
        if (f["detector"], f["dataset"], f["condition"]) == about:
            return load_file(path)
    raise AssertionError(f"no scores of {about}")


def attacked(case, out, detector, **changes):
    usual = {"detectors": {"d": detector}, "threats": [Linf(0.05)]}
    return audited(case, out, **(usual | changes))


def verdicts(results, side="both"):
    """The worst verdict of every flag, over all budgets."""
    rows = [r for r in results.rows if r.metric.startswith("flag_") and r.side == side]
    order = ("pass", "warn", "fail")
    found = {}
    for row in rows:
        name = row.metric.removeprefix("flag_")
        found[name] = max(found.get(name, "pass"), row.verdict, key=order.index)
    return found
