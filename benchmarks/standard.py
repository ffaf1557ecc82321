"""Claim: on the same images `standard` leaves no higher AUROC than the suite of 0.1 by more than 0.005.

    python -m benchmarks.standard images --data DIR --out FILE.safetensors
    python -m benchmarks.standard rows --images FILE.safetensors --zoo DIR --out FILE.jsonl [--device cuda] [CASE ...]

`images` draws the images of each case once. `rows` attacks them with the suite of the rood that is imported: run this
file as a script with PYTHONPATH at the sources of 0.1 for the other half. A CASE is NETWORK:DETECTOR. The rows, joined,
are docs/results/attack-standard.jsonl, a table of docs/evidence/attack-strength.md.
"""  # noqa: E501

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from rood import detectors
from rood.attacks import WorstOf
from rood.detectors import Detector, Mirrored
from rood.goals import look_in, look_out
from rood.metrics import auroc
from rood.models import checkpoint
from rood.models.model import Model
from rood.threat import parse
from rood.version import __version__

NETWORKS = {"cifar10-aloe-8": "8/255", "cifar10-aloe": "1/255", "gtsrb-aloe": "1/255"}
SETS = {"cifar10": ("svhn", "dtd", "scenes"), "gtsrb": ("svhn", "dtd")}
PACKS = {
    "cifar10": "cifar10_test",
    "gtsrb": "gtsrb_test5k",
    "svhn": "svhn_test5k",
    "dtd": "dtd10_32",
    "scenes": "scenes6_32",
}
CASES = [f"{n}:{d}" for n in NETWORKS for d in ("knn", "msp", "energy", "mirrored_energy")]
N, EXEMPLARS, BANK, BATCH = 100, 200, 2000, 500
SHOWN = 1000  # of each pack, evenly spaced, to the tables of the zoo: not to this one


def draw(args: argparse.Namespace) -> None:
    """`BANK` images for KNN's bank, exemplars and images of both sides, in whole levels."""
    from rood import data
    from rood.data.base import spaced

    found: dict[str, Tensor] = {}
    for name, pack in PACKS.items():
        images = data.load(f"npz:{args.data / pack}.npz", shape=(3, 32, 32))
        taken = set(spaced(len(images), SHOWN))
        rest = torch.tensor([i for i in range(len(images)) if i not in taken])
        order = rest[torch.randperm(len(rest), generator=torch.Generator().manual_seed(0))]
        lots = [N, EXEMPLARS, BANK] if name in SETS else [N]
        parts = zip(("attacked", "exemplars", "bank"), order[: sum(lots)].split(lots), strict=False)
        found |= {f"{name}.{part}": images.images[lot].contiguous() for part, lot in parts}
    save_file(found, args.out)


class Counted:
    """Backward passes per image through a network, however its score is made."""

    def __init__(self, model: Model) -> None:
        self.images = 0
        model.register_forward_hook(self._passed)

    def _passed(self, _: Model, __: tuple[object, ...], out: Any) -> None:
        if out.features.requires_grad:
            out.features.register_hook(self._returned)

    def _returned(self, gradient: Tensor) -> None:
        self.images += len(gradient)


def fitted(name: str, model: Model, bank: Tensor) -> Detector:
    if name == "mirrored_energy":
        return Mirrored.energy(model)
    detector: Detector = detectors.registry.get(name)(model)
    labels = torch.zeros(0, dtype=torch.long)
    return detector.fit([(x, labels[:0].new_zeros(len(x))) for x in bank.split(BATCH)])


@torch.no_grad()
def exact(detector: Detector, x: Tensor) -> Tensor:
    """Scores in float32: the search is in TF32 on a GPU."""
    precision(fast=False)
    found = torch.cat([detector.score(part) for part in x.split(BATCH)]).cpu()
    precision(fast=True)
    return found


def precision(*, fast: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = fast


def measured(case: str, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row an OOD set: AUROC clean and with one or both sides attacked, and the cost."""
    network, _, name = case.partition(":")
    kind, eps = network.partition("-")[0], NETWORKS[network]
    model = checkpoint.load(args.zoo / f"{network}.safetensors").to(args.device)
    pixels = {k: v.to(args.device) / 255 for k, v in load_file(args.images).items()}
    detector, passes = fitted(name, model, pixels[f"{kind}.bank"]), Counted(model)
    sets = SETS[kind]
    x_in = pixels[f"{kind}.attacked"][: args.n]
    x_out = torch.cat([pixels[f"{s}.attacked"][: args.n] for s in sets])
    clean_in, clean_out = exact(detector, x_in), exact(detector, x_out)
    goals = {
        "inside": (replace(look_out(detector), enough=clean_out.max().item()), x_in),
        "outside": (
            replace(look_in(detector, pixels[f"{kind}.exemplars"]), enough=-clean_in.min().item()),
            x_out,
        ),
    }
    scores, cost = {}, {}
    for side, (goal, x) in goals.items():
        passes.images = 0
        found = WorstOf()(goal, x, parse(eps), torch.Generator().manual_seed(0))
        scores[side], cost[side] = exact(detector, found), round(passes.images / len(x))
    for i, dataset in enumerate(sets):
        part = slice(i * args.n, (i + 1) * args.n)
        of = lambda a, b, part=part: round(auroc(inside=a, outside=b[part]), 4)
        yield {
            "network": network,
            "eps": eps,
            "n": args.n,
            "detector": name,
            "dataset": dataset,
            "attack": "standard",
            "version": ".".join(__version__.split(".")[:2]),
            "clean": of(clean_in, clean_out),
            "outside": of(clean_in, scores["outside"]),
            "inside": of(scores["inside"], clean_out),
            "both": of(scores["inside"], scores["outside"]),
            "backwards_inside": cost["inside"],
            "backwards_outside": cost["outside"],
        }


def rows(args: argparse.Namespace) -> None:
    """Every case, its rows as soon as they are there."""
    precision(fast=True)
    for case in args.cases:
        for row in measured(case, args):
            print(json.dumps(row), flush=True)
            with args.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job", choices=("images", "rows"))
    parser.add_argument("cases", nargs="*", default=CASES, metavar="CASE")
    for name in ("--data", "--images", "--zoo"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--n", type=int, default=N, help="images a side and set")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args(words)
    draw(args) if args.job == "images" else rows(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
