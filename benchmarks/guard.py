"""Claim: a guard decides at 1.10 of the bare network's cost, for detectors of its outputs."""

import sys

import torch

from benchmarks.bare import enlarge_bank, forward
from benchmarks.measure import Claim, ratio, report
from rood.detectors import OutputDetector, fit_all, registry
from rood.guard.guard import Guard
from rood.models.backbones import create
from rood.models.wrap import wrap
from rood.seeds import generator

BAR = 1.10


def claims(
    images: int = 64,
    bank: int = 5000,
    depth: int = 40,
    runs: int = 7,
    names: tuple[str, ...] = ("msp", "knn", "vim"),
) -> list[Claim]:
    """For each detector: guard(x), checks included, against the bare network on the same images."""
    net = create("wide_resnet", depth=depth, widen=2, classes=10)
    model = wrap(net, mean=(0.5,), std=(0.25,))
    x = torch.rand(images, 3, 32, 32, generator=generator(0, "benchmark"))
    batches = [(x, torch.arange(images) % 10)]

    bare, found = forward(model, x), []
    for name in names:
        detector = registry.get(name)(model)
        fit_all([detector], batches)
        enlarge_bank(detector, bank)
        guard = Guard.calibrated(detector, batches)
        value, spread = ratio(lambda guard=guard: guard(x), bare, runs)
        detail = f"WRN-{depth}-2, {images} images" + (f", bank {bank}" if name == "knn" else "")
        found.append(Claim(f"guard of {name} / bare network", value, BAR, runs, spread, detail))
    return found


def of_outputs() -> tuple[str, ...]:
    """Every detector that is a formula of logits and features."""
    model = wrap(create("small_cnn", classes=10))
    names = [n for n in registry.names() if not hasattr(registry.get(n), "example")]
    made = {n: registry.get(n)(model) for n in names}
    return tuple(n for n, d in made.items() if isinstance(d, OutputDetector) and not d.taps)


if __name__ == "__main__":
    every = {"names": of_outputs()} if "--all" in sys.argv else {}
    sys.exit(report("guard", claims(**every)))
