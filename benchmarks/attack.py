"""Claim: PGD-40 through the library costs at most 1.05 of 41 bare forward and backward passes."""

import torch

from benchmarks.measure import Claim, ratio
from rood.attacks import PGD
from rood.detectors import MSP
from rood.goals import look_in
from rood.models.backbones import create
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.threat import Linf


def claims(images: int = 8, runs: int = 7) -> list[Claim]:
    model = wrap(create("wide_resnet", depth=40, widen=2, classes=10))
    detector = MSP(model)
    x = torch.rand(images, 3, 32, 32, generator=generator(0, "benchmark"))
    goal = look_in(detector)

    def bare() -> None:
        probe = x.clone()
        for _ in range(41):
            probe = probe.detach().requires_grad_()
            torch.autograd.grad(goal(probe).sum(), probe)

    ours = lambda: PGD(steps=40)(goal, x, Linf(8 / 255), generator(0, "pgd"))
    found, spread = ratio(ours, bare, runs)
    detail = f"WRN-40-2, {images} images"
    return [Claim("PGD-40 / 41 forward+backward passes", found, 1.05, runs, spread, detail)]
