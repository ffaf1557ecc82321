"""Flows and auto-encoders: what they say of other images, and LIANG's and a direct attack on them.

    python -m benchmarks.liang_generative digits --networks DIR --out DIR
    python -m benchmarks.liang_generative fashion --networks DIR --data DIR --out DIR --device cuda

DIR of networks: what `rood train --name fashion-glow` and `--name fashion-autoencoder` wrote (or
digits-...). The data are the packs fashion_mnist_test, mnist_test and notmnist_small. One JSON line
a row, in generative-NAME.jsonl, where rows of other systems stay.
"""

import argparse
import copy
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.direct import against, reached, scores, without_limit
from benchmarks.liang_trained import shortened
from rood import data
from rood.analysis.matching import (
    Encoder,
    Matched,
    attack_pairs,
    checkerboard_starts,
    features,
    noise_starts,
    score_of,
    spiral_starts,
)
from rood.attacks import FeatureMatch
from rood.data.base import SHARES, ImageSet, split
from rood.detectors import AutoEncoder, Complexity, Glow
from rood.detectors.base import Detector
from rood.evaluation.manifest import full_precision
from rood.metrics import auroc
from rood.models import checkpoint
from rood.models.generative.glow import GlowNetwork
from rood.models.model import Model
from rood.shapes import Images
from rood.threat import L2, to_8_bit

# L2: two images of noise are 11.4 apart at 28x28; an auto-encoder's code is not found at 5
EPS, WIDER = (5.0,), (5.0, 10.0)
BATCH = 200
CLOSE = 1e-4  # a pixel that is further off after a round trip is counted
KEY = ("kind", "system", "matched", "start", "eps", "outside")  # rows alike in these are one


@dataclass(frozen=True)
class System:
    """A detector, and what of it the attack matches."""

    name: str
    detector: Detector
    matched: str
    encoder: Encoder
    eps: tuple[float, ...] = EPS
    paper: float | None = None  # LIANG's AUROC, of the same system on CelebA, from a spiral


def systems(flow: Model, coder: Model, fit: ImageSet) -> Iterator[System]:
    """All of ours; the auto-encoders' residuals are measured on `fit`."""
    for cls, paper in ((Glow, None), (Complexity, 0.500)):
        detector = cls(flow)
        yield System(cls.__name__.lower(), detector, "score", score_of(detector), paper=paper)
    code = features(coder)
    for residual in ("l2", "l1", "mahalanobis"):
        coded = AutoEncoder(coder, residual=residual)
        coded.fit(fit.batches(BATCH, coder.mean.device))
        yield System(f"autoencoder_{residual}", coded, "code", code, WIDER)


def whole(x: Images) -> Images:
    return (255 * x).round() / 255


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


def attacked(
    system: System, inside: Images, start: str, begin: Images, pairs: list[Matched]
) -> Iterator[dict[str, Any]]:
    """Both attacks from one start within each ball, judged on what 8 bits can hold."""
    d, balls = system.detector, [L2(eps) for eps in system.eps]
    known = [*([found.images] for found in pairs), []]
    *direct, far = reached(d, inside, begin, [*balls, without_limit(begin)], known, "quick")
    of = lambda x: against(d, inside, x)
    for ball, found, lowest in zip(balls, pairs, direct, strict=True):
        yield {
            "kind": "attacked", "system": system.name, "matched": system.matched, "start": start,
            "eps": ball.eps, "clean": of(begin), "auroc": of(found.images),
            "auroc_8_bit": of(to_8_bit(found.images, begin, ball)),
            "direct": "worst_of quick, pgd-100, matched", "direct_auroc": of(lowest),
            "direct_auroc_8_bit": of(to_8_bit(lowest, begin, ball)),
            "direct_unbounded": of(far),
            "paper": system.paper if start == "spiral" else None, **shortened(found),
        }  # fmt: skip


@torch.no_grad()
def undone(flow: Model, inside: Images) -> dict[str, Any]:
    """How exactly the flow comes back, also in float64, and what it needs for an image."""
    levels = (255 * inside.double()).round() / 255  # float32 pixels are not exact levels
    size, exact = (inside.shape[2], inside.shape[3]), copy.deepcopy(flow).double()
    row: dict[str, Any] = {"kind": "round trip", "n": len(inside)}
    for name, model, x in (("", flow, inside), ("_float64", exact, levels)):
        net, off, bits = GlowNetwork.of(model), [], []
        for part, level in zip(x.split(BATCH), levels.split(BATCH), strict=True):
            seen = net.look(part)
            off.append((net.decode(seen.z, size) - level).abs().flatten(1).amax(dim=1))
            bits.append(seen.nll)
        worst = torch.cat(off)
        row |= {f"median{name}": worst.median().item(), f"largest{name}": worst.max().item()}
        row |= {f"beyond{name}": int((worst > CLOSE).sum())}
        row |= {f"other_level{name}": int((worst > 0.5 / 255).sum())}
        row |= {f"bits{name}": torch.cat(bits).mean().item()}
    return row


class Kept:
    """The rows of a file; a new one takes the place of that with the same key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.rows = {self.key(row): row for row in map(json.loads, lines)}

    @staticmethod
    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row.get(name) for name in KEY)

    def add(self, row: dict[str, Any]) -> None:
        self.rows[self.key(row)] = row
        self.path.write_text("".join(json.dumps(r) + "\n" for r in self.rows.values()))


def images_of(name: str, folder: Path | None) -> tuple[dict[str, ImageSet], dict[str, ImageSet]]:
    """In-distribution parts (fit, test), and sets from outside."""
    if name == "digits":
        parts = split(data.load("digits:inside"), "", **SHARES)
        return parts, {n: data.load(f"digits:{n}") for n in ("near", "patches")}
    read: Callable[[str], ImageSet] = lambda pack: data.load(f"npz:{folder}/{pack}.npz")
    parts = split(read("fashion_mnist_test"), "", fit=0.3, test=0.7)
    return parts, {"mnist": read("mnist_test"), "notmnist": read("notmnist_small")}


def starts_of(inside: Images, far: tuple[str, Images]) -> dict[str, Images]:
    """Where attacks begin, on whole levels, one image for each of `inside`."""
    return {
        "noise": whole(noise_starts(inside)),
        "spiral": whole(spiral_starts(inside)),
        "checkerboard": checkerboard_starts(inside),
        far[0]: far[1],
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=("digits", "fashion"))
    for option in ("--networks", "--data", "--out"):
        parser.add_argument(option, type=Path)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--systems", help="only those whose names begin so")
    parser.add_argument("--starts", nargs="+", help="only these: noise, spiral, ...")
    args = parser.parse_args(arguments)
    flow, coder = (
        checkpoint.load(args.networks / f"{args.name}-{kind}.safetensors").to(args.device)
        for kind in ("glow", "autoencoder")
    )
    parts, outside = images_of(args.name, args.data)
    found = list(systems(flow, coder, parts["fit"].thin(3000)))
    found = [s for s in found if s.name.startswith(args.systems or "")]
    many = parts["test"].thin(10 * args.n).pixels().to(args.device)
    args.out.mkdir(parents=True, exist_ok=True)
    kept = Kept(args.out / f"generative-{args.name}.jsonl")
    write = lambda row: kept.add({"network": args.name} | row)
    with full_precision():
        write(undone(flow, many))
        for row in told({n: s.thin(10 * args.n) for n, s in outside.items()}, many, found):
            write(row)
            print(row["system"], row["outside"], round(row["auroc"], 3), flush=True)
        name, far = next(iter(outside.items()))
        inside = parts["test"].thin(args.n).pixels().to(args.device)
        starts = starts_of(inside, (name, far.thin(args.n).pixels().to(inside)))
        starts = {name: starts[name] for name in args.starts or starts}
        for row in attacks(found, inside, starts, FeatureMatch(steps=args.steps)):
            write(row)
            shown = ("system", "eps", "start", "auroc", "direct_auroc", "direct_unbounded")
            print(*(row[k] for k in shown), row["mape_median"], row["seconds"], flush=True)


def attacks(
    found: list[System], inside: Images, starts: dict[str, Images], match: FeatureMatch
) -> Iterator[dict[str, Any]]:
    """Every system from every start; those that share a code share its match."""
    pairs: dict[tuple[Encoder, str], list[Matched]] = {}
    for system in found:
        for start, begin in starts.items():
            began, x, key = time.perf_counter(), inside[: len(begin)], (system.encoder, start)
            if key not in pairs:
                pairs[key] = [
                    attack_pairs(system.encoder, x, begin, match, L2(eps), batch=BATCH)
                    for eps in system.eps
                ]
            for row in attacked(system, x, start, begin, pairs[key]):
                yield row | {"seconds": round(time.perf_counter() - began, 1)}


if __name__ == "__main__":
    main()
