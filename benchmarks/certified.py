"""What certificates leave of the digits networks: clean >= attacked >= certified AUROC.

    python -m benchmarks.certified digits-certified --images 200

Test images of the division by which the networks were trained, against near OOD (6 to 9); clean,
attacked by `quick`, certified by CROWN, with the side that is attacked. Rows go to
docs/results/certify-auroc.jsonl; a second run measures what is missing.

    python -m benchmarks.certified NAME ... --choose --eps 0.1 --out FILE

is for choosing among recipes without a look at near OOD or test images: calibration images against
letters and against halves of two calibration images, as they are and turned. ROOD_ZOO names the
folder of the candidates.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import torch

import rood
from benchmarks.measure import RESULTS, conditions
from rood import data, metrics
from rood.attacks.worst_of import WorstOf
from rood.certify import certified
from rood.detectors import MSP, Head
from rood.detectors.base import Detector
from rood.goals import look_in, look_out
from rood.seeds import generator
from rood.shapes import Images
from rood.threat import Linf, Threat
from rood.training import job, recipe
from rood_zoo.rows import Rows

BUDGETS = (0.02, 0.05, 0.1)
SIDES = ("outside", "inside", "both")
BATCH = 50
LETTERS = "npz:$ROOD_DATA/notmnist_small.npz"
HALVES = "spliced:{},seed=1@{}share:0.6-0.7@digits:inside"  # of the calibration images


def attacked(d: Detector, inside: Images, outside: Images, threat: Threat) -> dict[str, float]:
    """AUROC under `quick`, by attacked side."""
    worst = []
    for x, goal in ((inside, look_out(d)), (outside, look_in(d))):
        noise = generator(0, "certified")
        found = [WorstOf(tier="quick")(goal, some, threat, noise) for some in x.split(BATCH)]
        worst.append(torch.cat(found))
    with torch.no_grad():
        clean = d.score(inside).numpy(), d.score(outside).numpy()
        reached = d.score(worst[0]).numpy(), d.score(worst[1]).numpy()
    pairs = ((clean[0], reached[1]), (reached[0], clean[1]), reached)
    return {
        s: float(metrics.auroc(inside=p[0], outside=p[1]))
        for s, p in zip(SIDES, pairs, strict=True)
    }


def sets(name: str, images: int, choose: bool) -> Iterator[tuple[str, Images, Images]]:
    """What to tell apart: a name, ID images and OOD images."""
    parts = job.parts(recipe.get(name))
    if not choose:
        near = data.load("digits:near", limit=images).pixels()
        yield "near", parts["test"].thin(images).pixels(), near
        return
    inside = parts["calibrate"].thin(images).pixels()
    for what, turned in (("halves", ""), ("turned halves", "turned:1@")):
        yield what, inside, data.load(HALVES.format(images, turned)).pixels()
    shape = (1, *inside.shape[2:])
    yield "letters", inside, data.load(LETTERS, shape=shape, limit=images).pixels()


def measured(name: str, d: Detector, x: Images, o: Images, threat: Threat) -> dict[str, object]:
    """The numbers of a row."""
    with torch.no_grad():
        clean = float(metrics.auroc(inside=d.score(x).numpy(), outside=d.score(o).numpy()))
    start = time.perf_counter()
    found = certified(d, x, o, threat, method="crown")
    took = round(time.perf_counter() - start, 1)
    return {
        "images": len(x),
        "accuracy": rood.zoo.card(name)["training"]["accuracy"],
        "clean": round(clean, 4),
        "attacked": {k: round(v, 4) for k, v in attacked(d, x, o, threat).items()},
        "certified": {k: [round(v, 4) for v in found[k]["auroc"]] for k in SIDES},
        "seconds": took,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--images", type=int, default=200, help="of each side")
    parser.add_argument("--eps", type=float, nargs="+", default=BUDGETS)
    parser.add_argument("--choose", action="store_true", help="on what the choice may see")
    parser.add_argument("--out", type=Path, default=RESULTS / "certify-auroc.jsonl")
    args = parser.parse_args()
    rows = Rows(args.out, ("network", "outside", "eps"), **conditions())
    for name in args.names:
        model = rood.zoo.load(name)
        d: Detector = MSP(model) if model.scalar_head is None else Head(model)
        for outside, x, o in sets(name, args.images, args.choose):
            for eps in args.eps:
                key = {"network": name, "outside": outside, "eps": eps}
                if rows.has(**key):
                    continue
                found = measured(name, d, x, o, Linf(eps))
                row = {**key, "detector": type(d).__name__, **found}
                print(row, flush=True)
                rows.write(**row)


if __name__ == "__main__":
    main()
