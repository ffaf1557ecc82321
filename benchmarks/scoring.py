"""Claim: 30 output-based detectors score for 1.15 forward passes at most and fit for 1.3."""

import sys

import torch

from benchmarks.bare import enlarge_bank
from benchmarks.bare import forward as bare_forward
from benchmarks.measure import Claim, ratio, report
from rood.detectors import (
    GEN,
    KNN,
    Energy,
    Mahalanobis,
    OutputDetector,
    ReAct,
    ViM,
    fit_all,
    registry,
    score_all,
)
from rood.models.backbones import create
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.seeds import generator


def thirty(model: Model) -> dict[str, OutputDetector]:
    """Every detector that is a formula of logits and features, some with several settings."""
    made = [
        detector
        for name in registry.names()
        if not hasattr(registry.get(name), "example")
        for detector in [registry.get(name)(model)]
        if isinstance(detector, OutputDetector) and not detector.taps
    ]
    made += [Mahalanobis(model, pooling="class_average")]
    made += [KNN(model, k=k) for k in (10, 20, 100)]
    made += [ViM(model, dimension=d) for d in (16, 32, 96)]
    made += [Energy(model, temperature=t) for t in (0.5, 2.0)]
    made += [GEN(model, gamma=0.5), ReAct(model, percentile=95.0)]
    return {f"{i} {type(d).__name__}": d for i, d in enumerate(made[:30])}


def claims(images: int = 256, bank: int = 5000, depth: int = 40, runs: int = 5) -> list[Claim]:
    net = create("wide_resnet", depth=depth, widen=2, classes=10)
    model = wrap(net, mean=(0.5,), std=(0.25,))
    x = torch.rand(images, 3, 32, 32, generator=generator(0, "benchmark"))
    y = torch.arange(images) % 10
    detectors = thirty(model)
    batches = [(x, y)]
    fit_all(detectors.values(), batches)

    forward = bare_forward(model, x)
    fit, fit_spread = ratio(lambda: fit_all(detectors.values(), batches), forward, runs)
    for d in detectors.values():
        enlarge_bank(d, bank)

    @torch.no_grad()
    def score() -> None:
        score_all(detectors, x)

    scored, spread = ratio(score, forward, runs)
    setting = f"WRN-{depth}-2, {images} images"
    return [
        Claim(
            f"{len(detectors)} detectors score / forward pass",
            scored,
            1.15,
            runs,
            spread,
            f"{setting}, bank {bank}",
        ),
        Claim(
            f"{len(detectors)} detectors fit / forward pass", fit, 1.3, runs, fit_spread, setting
        ),
    ]


if __name__ == "__main__":
    sys.exit(report("scoring", claims()))
