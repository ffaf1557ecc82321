"""Claims on one GPU: PGD runs at 90 % of the bare rate or more, KNN's bank is on it once.

A minute on an H200, in full float32 as in an audit. `--graphs` measures instead what recording the
goal as a CUDA graph gains, and whether its values are the same.
"""

import statistics
import sys
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.bare import forward_backward
from benchmarks.measure import Claim, Point, of, ratio, report, seconds, times
from rood.attacks import PGD
from rood.data.base import ImageSet
from rood.detectors import KNN, MSP, Energy, score_all
from rood.evaluation.manifest import full_precision
from rood.goals import graphed, look_in
from rood.models.backbones import create
from rood.models.model import Model
from rood.models.wrap import wrap
from rood.seeds import generator
from rood.threat import Linf

VIT_B = {"size": 224, "patch": 16, "width": 768, "depth": 12, "heads": 12}


def resnet(device: str) -> Model:
    return wrap(create("resnet18", classes=10).to(device), mean=(0.5,), std=(0.25,))


def vit(device: str, **sizes: int) -> Model:
    net = create("vit", classes=1000, **VIT_B | sizes)
    return wrap(net.to(device), mean=(0.5,), std=(0.25,))


def pixels(n: int, side: int, device: str) -> Tensor:
    return torch.rand(n, 3, side, side, generator=generator(0, "benchmark")).to(device)


def loop(name: str, model: Model, x: Tensor, steps: int = 40, runs: int = 5) -> Claim:
    """Images x steps per second of PGD, as a share of bare forward and backward passes."""
    passes = max(1, steps // 4)
    goal, attack = look_in(MSP(model)), PGD(steps=steps)
    ours = lambda: attack(goal, x, Linf(2 / 255), generator(0, "pgd"))
    found = times({"ours": ours, "bare": forward_backward(model, x, passes)}, runs)
    rates = {
        "rood": [len(x) * steps / t for t in found["ours"]],
        "bare": [len(x) * passes / t for t in found["bare"]],
    }
    value, spread = of(rates["rood"], rates["bare"])
    size = f"{x.shape[2]}x{x.shape[3]}, batch {len(x)}"
    point: Point = {"network": name, "batch": len(x), "steps": steps}
    point |= {k: round(statistics.median(v), 1) for k, v in rates.items()}
    title = f"PGD-{steps} on {name}: rate / bare rate"
    return Claim(title, value, 0.9, runs, spread, size, at_least=True, points=(point,))


def data(model: Model, n: int, side: int, batch: int, runs: int = 3) -> Claim:
    """The cost of reading images from main memory."""
    device = model.mean.device
    g = generator(0, "images")
    stored = torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=g)
    there = ImageSet("images", stored).batches(batch, device)
    detectors = {"msp": MSP(model), "energy": Energy(model)}
    here = list(there)

    @torch.no_grad()
    def score(batches: object) -> None:
        for x, _ in batches:
            score_all(detectors, x)["msp"].cpu()

    value, spread = ratio(partial(score, there), partial(score, here), runs)
    detail = f"{n} images of {side}x{side}, batch {batch}"
    return Claim("scores, images in main memory / on GPU", value, 1.05, runs, spread, detail)


def knn(device: str, bank: int = 1_200_000, d: int = 2048, queries: int = 512) -> list[Claim]:
    """Fit and score through the public calls; the features are the pixels."""
    model = wrap(nn.Sequential(nn.Flatten(), nn.Linear(d, 10)).to(device))
    detector = KNN(model, k=50)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    fit = seconds(lambda: detector.fit(_Features(bank, d, device)))
    x, _ = next(iter(_Features(queries, d, device)))

    @torch.no_grad()
    def score() -> None:
        detector.score(x)

    @torch.no_grad()
    def products() -> None:
        for part in detector.bank_.split(65_536):
            x.flatten(1) @ part.T

    value, spread = ratio(score, products, 5)
    took = seconds(score)
    gigabytes = bank * d * 4 / 1e9
    peak = (torch.cuda.max_memory_allocated() - before) / 1e9
    point: Point = {"bank": bank, "features": d, "queries": queries, "fit_seconds": round(fit, 2)}
    point |= {"score_seconds": round(took, 4), "bank_gb": round(gigabytes, 3)}
    point |= {"peak_gb": round(peak, 3)}
    detail = f"bank {bank:,} x {d}, {queries} queries"
    return [
        Claim("KNN: peak memory / bank", peak / gigabytes, 1.15, 1, 0.0, detail, points=(point,)),
        Claim("KNN: score / its inner products alone", value, 2.0, 5, spread, detail),
    ]


class _Features:
    def __init__(self, n: int, d: int, device: str) -> None:
        self.n, self.d, self.device = n, d, device

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        g = torch.Generator(self.device).manual_seed(0)
        for start in range(0, self.n, 8192):
            b = min(8192, self.n - start)
            x = torch.rand(b, 1, 1, self.d, device=self.device, generator=g)
            yield x, torch.zeros(b, dtype=torch.long, device=self.device)


def graphs(device: str, batches: tuple[int, ...] = (1, 16, 128, 512)) -> list[Claim]:
    """PGD on a recorded goal beside the plain one; 1 in `same` where every pixel is equal."""
    model, made = resnet(device), []
    for batch in batches:
        x = pixels(batch, 32, device)
        plain = look_in(MSP(model))
        recorded = graphed(plain, x)
        call = lambda goal, x=x: PGD(steps=20)(goal, x, Linf(2 / 255), generator(0, "pgd"))
        same = torch.equal(call(plain), call(recorded))
        value, spread = ratio(partial(call, recorded), partial(call, plain), 5)
        point: Point = {"batch": batch, "same": same}
        title = f"PGD-20 as a CUDA graph / plain, batch {batch}"
        made.append(Claim(title, value, 1.0, 5, spread, "ResNet-18", points=(point,)))
    return made


def claims(device: str = "cuda") -> Iterator[Claim]:
    with full_precision():
        yield loop("ResNet-18", resnet(device), pixels(512, 32, device))
        large = vit(device)
        yield loop("ViT-B/16", large, pixels(64, 224, device), runs=3)
        yield data(large, 512, 224, 64)
        del large
        yield from knn(device)


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("gpu: not measured, there is none")
        sys.exit(0)
    if "--graphs" in sys.argv:
        with full_precision():
            sys.exit(report("gpu-graphs", graphs("cuda")))
    sys.exit(report("gpu", list(claims())))
