"""Claim: 20 output-based detectors score for 1.15 forward passes at most and fit for 1.3."""

import torch

from benchmarks.measure import Claim, ratio
from rood.detectors import (
    KNN,
    MSP,
    Energy,
    Entropy,
    Mahalanobis,
    MaxLogit,
    OutputDetector,
    RelativeMahalanobis,
    ViM,
    fit_all,
    score_all,
)
from rood.models.backbones import create
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.seeds import generator


def twenty(model: Model) -> dict[str, OutputDetector]:
    """Every output-based detector, some with several settings, up to 20."""
    made = [
        MSP(model),
        MaxLogit(model),
        Entropy(model),
        *(Energy(model, temperature=t) for t in (0.5, 1.0, 2.0, 5.0, 10.0)),
        Mahalanobis(model),
        Mahalanobis(model, pooling="class_average"),
        RelativeMahalanobis(model),
        *(KNN(model, k=k) for k in (10, 20, 50, 100)),
        *(ViM(model, dimension=d) for d in (16, 32, 64, 96)),
        ViM(model),
    ]
    assert len(made) == 20
    return {f"{i} {type(d).__name__}": d for i, d in enumerate(made)}


def claims(images: int = 256, bank: int = 5000, runs: int = 5) -> list[Claim]:
    net = create("wide_resnet", depth=40, widen=2, classes=10)
    model = wrap(net, mean=(0.5,), std=(0.25,))
    g = generator(0, "benchmark")
    x = torch.rand(images, 3, 32, 32, generator=g)
    y = torch.arange(images) % 10
    detectors = twenty(model)
    batches = [(x, y)]
    fit_all(detectors.values(), batches)

    @torch.no_grad()
    def forward() -> None:
        model.net((x - model.mean) / model.std)

    fit, fit_spread = ratio(lambda: fit_all(detectors.values(), batches), forward, runs)
    for d in detectors.values():
        if isinstance(d, KNN):
            rows = torch.randn(bank, model.head.in_features, generator=g)
            d.bank_ = torch.nn.functional.normalize(rows, dim=1)

    @torch.no_grad()
    def score() -> None:
        score_all(detectors, x)

    scored, spread = ratio(score, forward, runs)
    setting = f"WRN-40-2, {images} images"
    return [
        Claim(
            "20 detectors score / forward pass",
            scored,
            1.15,
            runs,
            spread,
            f"{setting}, bank {bank}",
        ),
        Claim("20 detectors fit / forward pass", fit, 1.3, runs, fit_spread, setting),
    ]
