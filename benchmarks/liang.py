"""LIANG's attack: OOD images take the code of an in-distribution image; what do scores say?

    python -m benchmarks.liang digits --out DIR
    python -m benchmarks.liang cifar10 --networks DIR --data DIR --out DIR

The second needs plain.safetensors of `benchmarks.attack_networks` and the pack cifar10_test. One
JSON line a start; `make docs` puts them into docs/attack-strength.md.
"""

import argparse
import json
from pathlib import Path

from rood import data, zoo
from rood.analysis.matching import attack_pairs, logits, noise_starts, spiral_starts
from rood.attacks import FeatureMatch
from rood.data.base import SHARES, split
from rood.detectors import fit_all, registry
from rood.metrics import auroc
from rood.models import checkpoint
from rood.threat import L2

OF_LOGITS = ("msp", "temperature_scaling", "entropy", "gen", "max_logit", "energy",
             "uniform_cross_entropy", "klm")  # fmt: skip
OTHERS = ("mahalanobis", "knn", "vim")
STARTS = {"noise": noise_starts, "spiral": spiral_starts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", choices=("digits", "cifar10"))
    for name in ("--networks", "--data", "--out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--n", type=int, default=200)
    args = parser.parse_args()
    if args.network == "digits":
        model, eps = zoo.load("digits-ce"), 5.0
        parts = split(data.load("digits:inside"), "", **SHARES)
    else:
        # as in the paper; two noise images are 22.6 apart
        model, eps = checkpoint.load(args.networks / "plain.safetensors"), 10.0
        images = data.load(f"npz:{args.data / 'cifar10_test'}.npz", shape=(3, 32, 32))
        parts = split(images, "", fit=0.3, test=0.7)
    detectors = {d: registry.get(d)(model) for d in (*OF_LOGITS, *OTHERS)}
    fit_all(detectors.values(), parts["fit"].thin(2000).batches(250))
    inside = parts["test"].thin(args.n).pixels()
    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / f"liang-{args.network}.jsonl").open("w") as file:
        for start, make in STARTS.items():
            begin = make(inside)
            found = attack_pairs(logits(model), inside, begin, FeatureMatch(), L2(eps))
            row = {
                "network": args.network, "start": start, "eps": eps, "n": len(inside),
                "matched": "logits",
                "clean": {d: auroc(inside=s.score(inside), outside=s.score(begin))
                          for d, s in detectors.items()},
                "auroc": {d: found.auroc(s.score) for d, s in detectors.items()},
                **found.to_dict(),
            }  # fmt: skip
            print(start, row["mape_median"], row["auroc"], flush=True)
            file.write(json.dumps(row) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
