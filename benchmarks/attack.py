"""Claim: PGD-40 and APGD-40 cost at most 1.05 of 41 bare forward and backward passes.

Beside other libraries' PGD: `make peers`, docs/evidence/attack-strength.md.
"""

import sys
from functools import partial

import torch

from benchmarks.bare import forward_backward
from benchmarks.measure import Claim, of, report, times
from rood.attacks import APGD, PGD
from rood.detectors import MSP
from rood.goals import look_in
from rood.models.backbones import create
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.threat import Linf

BAR = 1.05


def claims(images: int = 8, steps: int = 40, depth: int = 40, runs: int = 7) -> list[Claim]:
    model = wrap(create("wide_resnet", depth=depth, widen=2, classes=10))
    x = torch.rand(images, 3, 32, 32, generator=generator(0, "benchmark"))
    goal = look_in(MSP(model))
    attacks = {f"{a.__name__}-{steps}": a(steps=steps) for a in (PGD, APGD)}
    call = lambda attack: attack(goal, x, Linf(8 / 255), generator(0, "attack"))
    calls = {name: partial(call, attack) for name, attack in attacks.items()}
    bare = forward_backward(model, x, steps + 1)
    found = times({**calls, "bare": bare}, runs)
    made = []
    for name in attacks:
        value, spread = of(found[name], found["bare"])
        title = f"{name} / {steps + 1} forward+backward passes"
        made.append(Claim(title, value, BAR, runs, spread, f"WRN-{depth}-2, {images} images"))
    return made


if __name__ == "__main__":
    sys.exit(report("attack", claims()))
