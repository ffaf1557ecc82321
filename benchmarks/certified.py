"""What certificates leave of networks trained for them: clean >= attacked >= certified AUROC.

    python -m benchmarks.certified digits-certified --images 200
    python -m benchmarks.certified cifar10-certified --eps 1/255

Test images against OOD sets: near OOD (6 to 9) for digits, else svhn, cifar100 and others; clean,
attacked by `quick`, certified by CROWN, with the side that is attacked. The accuracy is that of a
classifier beside it where the network is there to tell ID from OOD alone. Rows go to
docs/results/certify-auroc.jsonl; a second run measures what is missing, `--join FILE ...` adds rows
that were measured elsewhere.

    python -m benchmarks.certified NAME ... --choose --eps 0.1 --out FILE

is for choosing among recipes without a look at OOD test sets or test images: other held-out images
against letters and against halves of two held-out images. ROOD_ZOO names the folder of the
candidates.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import rood
from benchmarks.measure import RESULTS, conditions
from benchmarks.soundness import join
from rood import data, metrics
from rood.attacks.base import Goal
from rood.attacks.worst_of import WorstOf
from rood.certify import METHODS, Certifier, Method
from rood.detectors import MSP, Head
from rood.detectors.base import Detector
from rood.goals import look_in, look_out
from rood.seeds import generator
from rood.shapes import Images
from rood.threat import Threat, parse
from rood.training import job, recipe
from rood_zoo.rows import Rows

BUDGETS = {"digits": ("0.02", "0.05", "0.1"), "cifar10": ("1/255",), "svhn": ("8/255",)}
KEY = ("network", "outside", "eps")
Known = dict[Threat, tuple[NDArray[np.float64], NDArray[np.float64]]]
BATCH = 50
PACK = "npz:$ROOD_DATA/{}.npz"
OUTSIDE = {
    "digits": {"near": "digits:near"},
    "cifar10": {"svhn": PACK.format("svhn_test5k"), "cifar100": PACK.format("cifar100_test")},
    "svhn": {"cifar10": PACK.format("cifar10_test"), "cifar100": PACK.format("cifar100_test")},
}
HALVES = "spliced:{},seed=1@{}"
# held-out images: to choose on, to test on; those of digits are a part of the training's division
HELD_OUT = {
    "digits": ("share:0.6-0.7@digits:inside", ""),
    "cifar10": ("share:0-0.5@cifar10:test", "share:0.5-1@cifar10:test"),
    "svhn": (
        f"share:0.8-0.9@{PACK.format('svhn_test5k')}",
        f"share:0.9-1@{PACK.format('svhn_test5k')}",
    ),
}
CLASSIFIERS = {"cifar10": "cifar10-ce", "svhn": "svhn-ce"}  # beside it


def searched(d: Detector, x: Images, goal: Goal, threat: Threat) -> NDArray[np.float64]:
    """The scores that `quick` reaches."""
    noise = generator(0, "certified")
    found = [WorstOf(tier="quick")(goal, some, threat, noise) for some in x.split(BATCH)]
    return scores(d, torch.cat(found))


@torch.no_grad()
def scores(d: Detector, x: Images) -> NDArray[np.float64]:
    return d.score(x).double().cpu().numpy()


def family(name: str) -> str:
    """The data that a network was trained on."""
    return name.partition("-")[0]


def sets(name: str, images: int, choose: bool) -> Iterator[tuple[str, Images, Images]]:
    """What to tell apart: a name, ID images and OOD images."""
    kind = family(name)
    held, tested = HELD_OUT[kind]
    if kind == "digits":
        found = job.parts(recipe.get("digits-certified"))["calibrate" if choose else "test"]
    else:
        found = data.load(held if choose else tested)
    inside = found.thin(images).pixels()
    shape = inside.shape[1], inside.shape[2], inside.shape[3]
    others = OUTSIDE[kind]
    if choose:
        others = {"halves": HALVES.format(images, held), "letters": PACK.format("notmnist_small")}
        if kind == "digits":
            others["turned halves"] = f"turned:1@{others['halves']}"
        else:
            others["signs"] = PACK.format("gtsrb_test5k")
    for what, spec in others.items():
        yield what, inside, data.load(spec, shape=shape, limit=images).pixels()


def measured(
    name: str, d: Detector, x: Images, o: Images, threat: Threat, method: Method, known: Known
) -> dict[str, object]:
    """The numbers of a row."""
    bound = Certifier(d, threat, method)
    start = time.perf_counter()
    if threat not in known:
        known[threat] = bound(x).high.cpu().numpy(), searched(d, x, look_out(d), threat)
    (high, reached), low = known[threat], bound(o).low.cpu().numpy()
    took = round(time.perf_counter() - start, 1)
    clean = scores(d, x), scores(d, o)
    pairs = lambda a, b: {"outside": (clean[0], b), "inside": (a, clean[1]), "both": (a, b)}
    auroc = lambda s: metrics.auroc(inside=s[0], outside=s[1])
    worst = pairs(reached, searched(d, o, look_in(d), threat))
    cut = metrics.threshold_at_tpr(clean[0])
    interval = lambda s: metrics.summary(s[0], s[1], cut)["auroc"]
    beside = CLASSIFIERS.get(family(name), name)
    return {
        "images": len(x),
        "classifier": beside,
        "accuracy": rood.zoo.card(beside)["training"]["accuracy"],
        "clean": round(float(auroc(clean)), 4),
        "attacked": {k: round(float(auroc(s)), 4) for k, s in worst.items()},
        "certified": {k: [round(v, 4) for v in interval(s)] for k, s in pairs(high, low).items()},
        "method": method,
        "seconds": took,
    }


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--images", type=int, default=200, help="of each side")
    parser.add_argument("--eps", nargs="+", help="default: those of the network's data")
    parser.add_argument("--method", choices=METHODS, default="crown")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--choose", action="store_true", help="on what the choice may see")
    parser.add_argument("--out", type=Path, default=RESULTS / "certify-auroc.jsonl")
    parser.add_argument("--join", type=Path, nargs="+", help="rows that were measured elsewhere")
    return parser.parse_args()


def main() -> None:
    args = options()
    join(args.join or [], args.out, KEY)
    rows = Rows(args.out, KEY, **conditions())
    for name in args.names:
        model = rood.zoo.load(name).to(args.device)
        d: Detector = MSP(model) if model.scalar_head is None else Head(model)
        known: Known = {}  # the ID images are the same for all OOD sets
        for outside, x, o in sets(name, args.images, args.choose):
            for eps in args.eps or BUDGETS[family(name)]:
                threat = parse(eps)
                key = {"network": name, "outside": outside, "eps": round(threat.eps, 6)}
                if rows.has(**key):
                    continue
                both = x.to(args.device), o.to(args.device)
                found = measured(name, d, *both, threat, args.method, known)
                row = {**key, "detector": type(d).__name__, **found}
                print(row, flush=True)
                rows.write(**row)


if __name__ == "__main__":
    main()
