"""LIANG's attack on the systems that need training of their own, and the direct attack beside it.

    python -m benchmarks.liang_trained jem calibrated ensemble ccu --out DIR [--networks DIR]
    python -m benchmarks.liang_trained odin mahalanobis oe gram --out DIR --device cuda --steps 300

Networks are those of the zoo, or name.safetensors in --networks; where there is none for MNIST or
CIFAR-10, or with --small, that for the shipped digits. Images are the packs where ROOD_DATA says.
A JSON line for each start, budget and code: AUROC before, after the match, after the direct attack
(`worst_of` on each score itself, from the same starts in the same ball) and after one without a
limit, MAPE, the loss in time, and the paper's number where it has one. For `ccu` also how far
attacks get on real OOD images, and how far its certificate lets any attack get.
"""

import argparse
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import torch

from benchmarks.direct import against, climbed, reached, scores, without_limit
from benchmarks.liang_systems import CIFAR, DIGITS, MNIST, SYSTEMS, Shelf, System
from rood import data
from rood.analysis.matching import Matched, attack_pairs, noise_starts, spiral_starts
from rood.attacks import FeatureMatch, WorstOf
from rood.attacks.worst_of import Tier
from rood.detectors import CCU
from rood.evaluation.manifest import full_precision
from rood.goals import look_in
from rood.metrics import auroc
from rood.shapes import Images, Scores
from rood.threat import L2

STARTS = {"noise": noise_starts, "spiral": spiral_starts}
FASHION, SVHN = "npz:$ROOD_DATA/fashion_mnist_test.npz", "npz:$ROOD_DATA/svhn_test5k.npz"
FAR = {MNIST: FASHION, DIGITS: FASHION, CIFAR: SVHN}
CERTIFIED = (0.25, 0.5, 1.0, 2.0, 4.0)  # L2 radii of the attacks on real OOD images
POINTS = 100  # of a loss curve that are kept
Row = dict[str, Any]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("systems", nargs="+", choices=sorted(SYSTEMS))
    parser.add_argument("--networks", type=Path)
    parser.add_argument("--small", action="store_true", help="the shipped digits, for a CPU")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=[*STARTS])
    parser.add_argument("--tier", default="standard", choices=get_args(Tier))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args(arguments)
    args.out.mkdir(parents=True, exist_ok=True)
    shelf = Shelf(args.device, args.networks, args.small)
    for name in args.systems:
        began, system = time.perf_counter(), SYSTEMS[name](shelf)
        inside = shelf.parts(system.images)["test"].thin(args.n).pixels(args.device)
        found = []
        with full_precision():
            for row in rows(system, inside, FeatureMatch(steps=args.steps), args.tier, args.starts):
                found.append({"system": name, "network": system.network} | row)
                shown = {k: v for k, v in row.items() if not isinstance(v, list)}
                print(name, f"{time.perf_counter() - began:.0f} s", shown, flush=True)
        # at the end: a run that was broken off leaves the rows of the one before
        lines = [json.dumps(row) + "\n" for row in found]
        (args.out / f"matched-{name}.jsonl").write_text("".join(lines))


def rows(
    system: System, inside: Images, match: FeatureMatch, tier: Tier, starts: Iterable[str] = STARTS
) -> Iterator[Row]:
    for start in starts:
        yield from from_start(system, inside, STARTS[start](inside), start, match, tier)
    for detector in system.detectors.values():
        if isinstance(detector, CCU):
            yield from certified(detector, system.images, inside, WorstOf(tier=tier))


def from_start(
    system: System, inside: Images, begin: Images, start: str, match: FeatureMatch, tier: Tier
) -> Iterator[Row]:
    """Every budget and code."""
    balls = [L2(eps) for eps in system.eps]
    pairs = [
        {
            code: attack_pairs(c.encoder, inside, begin, match, ball)
            for code, c in system.codes.items()
        }
        for ball in balls
    ]
    budgets = [*balls, without_limit(begin)]
    known = [*([m.images for m in of.values()] for of in pairs), []]
    direct = {}
    for d, s in system.detectors.items():
        best = list(reached(s, inside, begin, budgets, known, tier))
        direct[d] = [against(s, inside, x) for x in best]
        # what lowers one score may lower another that is harder to climb
        known = [[*others, x] for others, x in zip(known, best, strict=True)]
    clean = {d: against(s, inside, begin) for d, s in system.detectors.items()}
    for i, ball in enumerate(balls):
        for code, found in pairs[i].items():
            yield {
                "start": start, "eps": ball.eps, "matched": code, "clean": clean,
                "auroc": {d: found.auroc(s.score) for d, s in system.detectors.items()},
                "direct": {d: values[i] for d, values in direct.items()},
                "direct_unbounded": {d: values[-1] for d, values in direct.items()},
                "certified": bounds(system, inside, begin, ball), "tier": tier,
                "paper": system.codes[code].paper if (start, i) == (system.start, 0) else {},
                **shortened(found),
            }  # fmt: skip


def shortened(found: Matched) -> Row:
    """What is known of a match, its curves at a few points."""
    row = found.to_dict()
    for name in ("loss_mean", "loss_median"):
        curve = row[name]
        places = sorted({round(i * (len(curve) - 1) / (POINTS - 1)) for i in range(POINTS)})
        row[name] = [float(f"{curve[i]:.6g}") for i in places]
    return row


def bounds(system: System, inside: Images, begin: Images, ball: L2) -> dict[str, float]:
    """The AUROC below which no attack in the ball can bring a score, where that is proven."""
    return {
        name: auroc(inside=scores(d, inside).double(), outside=least(d, begin, ball))
        for name, d in system.detectors.items()
        if isinstance(d, CCU)
    }


@torch.no_grad()
def least(detector: CCU, x: Images, ball: L2) -> Scores:
    return detector.least_score(x, detector.radius(ball))


def certified(detector: CCU, images: str, inside: Images, attack: WorstOf) -> Iterator[Row]:
    """Real OOD images and noise: AUROC clean >= attacked >= certified, and points beyond it."""
    c, h, w = inside.shape[1:]
    far = data.load(FAR[images], shape=(c, h, w)).thin(len(inside)).pixels(inside.device)
    own = scores(detector, inside)
    for name, outside in (("real", far), ("noise", noise_starts(inside))):
        for eps in CERTIFIED:
            found = climbed(look_in(detector, inside), outside, L2(eps), attack)
            got, low = scores(detector, found).double(), least(detector, outside, L2(eps))
            yield {
                "outside": name, "eps": eps, "n": len(outside),
                "clean": against(detector, inside, outside),
                "attacked": auroc(inside=own, outside=got),
                "certified": auroc(inside=own.double(), outside=low),
                "beyond": int((got < low - 1e-3 * (1 + low.abs())).sum()),
                "confidence_attacked": detector.confidence(got).mean().item(),
                "confidence_certified": detector.confidence(low).mean().item(),
            }  # fmt: skip


if __name__ == "__main__":
    main()
