"""What certificates leave of the digits networks: clean >= attacked >= certified AUROC.

    python -m benchmarks.certified digits-certified --images 200

Test images of the division by which the networks were trained, against near OOD (6 to 9); clean,
attacked by `quick`, certified by CROWN, with the side that is attacked. Rows go to
docs/results/certify-auroc.jsonl; a second run measures what is missing.
"""

import argparse
import time

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--images", type=int, default=200, help="of each side")
    parser.add_argument("--eps", type=float, nargs="+", default=BUDGETS)
    args = parser.parse_args()
    key = ("network", "outside", "eps")
    rows = Rows(RESULTS / "certify-auroc.jsonl", key, **conditions())
    for name in args.names:
        model = rood.zoo.load(name)
        d: Detector = MSP(model) if model.scalar_head is None else Head(model)
        test = job.parts(recipe.get(name))["test"].thin(args.images).pixels()
        near = data.load("digits:near", limit=args.images).pixels()
        with torch.no_grad():
            clean = float(
                metrics.auroc(inside=d.score(test).numpy(), outside=d.score(near).numpy())
            )
        for eps in args.eps:
            if rows.has(network=name, outside="near", eps=eps):
                continue
            start = time.perf_counter()
            found = certified(d, test, near, Linf(eps), method="crown")
            took = round(time.perf_counter() - start, 1)
            row = {
                "network": name,
                "detector": type(d).__name__,
                "outside": "near",
                "eps": eps,
                "images": len(test),
                "accuracy": rood.zoo.card(name)["training"]["accuracy"],
                "clean": round(clean, 4),
                "attacked": {k: round(v, 4) for k, v in attacked(d, test, near, Linf(eps)).items()},
                "certified": {k: [round(v, 4) for v in found[k]["auroc"]] for k in SIDES},
                "seconds": took,
            }
            print(row, flush=True)
            rows.write(**row)


if __name__ == "__main__":
    main()
