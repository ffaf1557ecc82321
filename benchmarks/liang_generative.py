"""Flows and auto-encoders: what they say of other images, and LIANG's and a direct attack on them.

    python -m benchmarks.liang_generative digits --networks DIR --out DIR
    python -m benchmarks.liang_generative fashion --networks DIR --data DIR --out DIR --device cuda

DIR of networks: what `rood train --name fashion-glow` and `--name fashion-autoencoder` wrote (or
digits-...). The data are the packs fashion_mnist_test, mnist_test and notmnist_small. One JSON line
a row, in generative-NAME.jsonl; samples of the flow in glow-samples-NAME.png.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from rood import data
from rood.attacks import PGD, FeatureMatch, WorstOf
from rood.attacks.base import Attack
from rood.data.base import ImageSet, split
from rood.detectors import AutoEncoder, Complexity, Glow
from rood.detectors.base import Detector
from rood.evaluation.manifest import full_precision
from rood.goals import look_in
from rood.matching import (
    Encoder,
    Matched,
    attack_pairs,
    checkerboard_starts,
    features,
    noise_starts,
    score_of,
    spiral_starts,
)
from rood.metrics import auroc
from rood.models import checkpoint
from rood.models.generative.glow import GlowNetwork
from rood.models.model import Model
from rood.rounding import to_8_bit
from rood.seeds import generator
from rood.shapes import Images, Scores
from rood.threat import L2
from rood.training.recipes import SHARES

EPS = 5.0  # L2: two images of noise are 11.4 apart at 28x28
BATCH = 200
# a flow's likelihood has narrow valleys, which long steps miss
DIRECT = (WorstOf(tier="quick"), PGD(steps=100, step=0.3, random_start=False))


@dataclass(frozen=True)
class System:
    """A detector, and what of it the attack matches."""

    name: str
    detector: Detector
    matched: str
    encoder: Encoder
    paper: float | None = None  # LIANG's AUROC, of the same system on CelebA 64x64


def systems(flow: Model, coder: Model, fit: ImageSet) -> Iterator[System]:
    """All of ours; the auto-encoders' residuals are measured on `fit`."""
    for cls, paper in ((Glow, None), (Complexity, 0.500)):
        detector = cls(flow)
        yield System(cls.__name__.lower(), detector, "score", score_of(detector), paper)
    for residual in ("l2", "l1", "mahalanobis"):
        coded = AutoEncoder(coder, residual=residual)
        coded.fit(fit.batches(BATCH, coder.mean.device))
        name = f"autoencoder_{residual}"
        yield System(name, coded, "code", features(coder))
        yield System(name, coded, "score", score_of(coded))


def whole(x: Images) -> Images:
    return (255 * x).round() / 255


@torch.no_grad()
def scores(detector: Detector, x: Images) -> Scores:
    return torch.cat([detector.score(part) for part in x.split(BATCH)])


def told(
    outside: dict[str, ImageSet], inside: Images, found: list[System]
) -> Iterator[dict[str, Any]]:
    """How well scores tell images of another kind, unattacked."""
    for system in {s.name: s for s in found}.values():
        for name, images in outside.items():
            x = images.pixels().to(inside)
            clean = auroc(
                inside=scores(system.detector, inside), outside=scores(system.detector, x)
            )
            yield {
                "kind": "clean", "system": system.name, "outside": name,
                "n": [len(inside), len(x)], "auroc": clean,
                "mean": [scores(system.detector, v).mean().item() for v in (inside, x)],
            }  # fmt: skip


def climbed(attack: Attack, d: Detector, begin: Images) -> Images:
    noise = generator(0, "direct")
    return torch.cat([attack(look_in(d), x, L2(EPS), noise) for x in begin.split(BATCH)])


def lowest(d: Detector, found: list[Images]) -> Images:
    """Of several images for each start, the one that is taken for inside most."""
    best = torch.stack([scores(d, x) for x in found]).argmin(dim=0)
    return torch.stack(found)[best, torch.arange(len(best), device=best.device)]


def attacked(system: System, inside: Images, start: str, begin: Images) -> dict[str, Any]:
    """Both attacks from one start within one ball, judged on what 8 bits can hold."""
    d, threat = system.detector, L2(EPS)
    found: Matched = attack_pairs(
        system.encoder, inside, begin, FeatureMatch(), threat, batch=BATCH
    )
    direct = lowest(d, [found.images, *(climbed(a, d, begin) for a in DIRECT)])
    against = lambda x: auroc(inside=scores(d, inside), outside=scores(d, x))
    return {
        "kind": "attacked", "system": system.name, "matched": system.matched, "start": start,
        "eps": EPS, "clean": against(begin), "auroc": against(found.images),
        "auroc_8_bit": against(to_8_bit(found.images, begin, threat)),
        "direct": "worst_of quick, pgd-100, matched", "direct_auroc": against(direct),
        "direct_auroc_8_bit": against(to_8_bit(direct, begin, threat)),
        "paper": system.paper, **found.to_dict(),
    }  # fmt: skip


@torch.no_grad()
def undone(flow: Model, inside: Images) -> dict[str, Any]:
    """How exactly the flow comes back, and what it needs for an image."""
    net = GlowNetwork.of(flow)
    seen = net.look(inside)
    size = (inside.shape[2], inside.shape[3])
    off = (net.decode(seen.z, size) - inside).abs().flatten(1).amax(dim=1)
    return {
        "kind": "round trip", "n": len(inside), "median": off.median().item(),
        "largest": off.max().item(), "bits": seen.nll.mean().item(),
    }  # fmt: skip


def sheet(flow: Model, size: tuple[int, int], path: Path, side: int = 8) -> None:
    """side x side samples in one picture."""
    x = GlowNetwork.of(flow).samples(side * side, size, generator(0, "samples"))
    rows = torch.cat([torch.cat([*row], dim=2) for row in x.split(side)], dim=1)
    pixels = (255 * rows).byte().cpu().permute(1, 2, 0).squeeze(2).numpy()
    Image.fromarray(pixels).save(path)


def images_of(name: str, folder: Path | None) -> tuple[dict[str, ImageSet], dict[str, ImageSet]]:
    """In-distribution parts (fit, test), and sets from outside."""
    if name == "digits":
        parts = split(data.load("digits:inside"), "", **SHARES)
        return parts, {n: data.load(f"digits:{n}") for n in ("near", "patches")}
    read: Callable[[str], ImageSet] = lambda pack: data.load(f"npz:{folder}/{pack}.npz")
    parts = split(read("fashion_mnist_test"), "", fit=0.3, test=0.7)
    return parts, {"mnist": read("mnist_test"), "notmnist": read("notmnist_small")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=("digits", "fashion"))
    for option in ("--networks", "--data", "--out"):
        parser.add_argument(option, type=Path)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--systems", help="only those whose names begin so")
    args = parser.parse_args()
    flow, coder = (
        checkpoint.load(args.networks / f"{args.name}-{kind}.safetensors").to(args.device)
        for kind in ("glow", "autoencoder")
    )
    parts, outside = images_of(args.name, args.data)
    found = list(systems(flow, coder, parts["fit"].thin(3000)))
    found = [s for s in found if s.name.startswith(args.systems or "")]
    many = parts["test"].thin(10 * args.n).pixels().to(args.device)
    inside = parts["test"].thin(args.n).pixels().to(args.device)
    far = next(iter(outside.values())).thin(args.n).pixels().to(inside)
    starts = {
        "noise": whole(noise_starts(inside)),
        "spiral": whole(spiral_starts(inside)),
        "checkerboard": checkerboard_starts(inside),
        next(iter(outside)): far,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / f"generative-{args.name}.jsonl").open("w") as file, full_precision():
        write = lambda row: print(json.dumps({"network": args.name} | row), file=file, flush=True)
        write(undone(flow, many))
        some = {n: s.thin(10 * args.n) for n, s in outside.items()}
        for row in told(some, many, found):
            write(row)
            print(row["system"], row["outside"], round(row["auroc"], 3), flush=True)
        for system in found:
            for start, begin in starts.items():
                began = time.perf_counter()
                row = attacked(system, inside[: len(begin)], start, begin)
                write(row | {"seconds": time.perf_counter() - began})
                shown = {k: round(row[k], 3) for k in ("clean", "auroc", "direct_auroc_8_bit")}
                print(system.name, system.matched, start, shown, row["mape_median"], flush=True)
        size = (inside.shape[2], inside.shape[3])
        sheet(flow, size, args.out / f"glow-samples-{args.name}.png")


if __name__ == "__main__":
    main()
