"""Claim: on honest networks at most 5 % of the attacked AUROCs carry `fail`, and at least 80 % `pass`.

Undefended and robust networks of the zoo, audited as a user would (`rood.audit`): no score hides anything, so
that a `fail` is a false alarm. Writes docs/results/honest.jsonl, a table of docs/evidence/attack-strength.md.
`ROOD_DATA=DIR python -m benchmarks.honest [NETWORK ...] [--attack quick] [--limit 32]`; what is there is not
measured again. Runs side by side write files of their own (`--out`, `--detector`); `--join FILE ...` takes their rows.
"""  # noqa: E501

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.measure import RESULTS
from rood import audit
from rood.evaluation.rows import CLEAN, Row
from rood_zoo.rows import Rows
from tools.markdown import read

DETECTORS = ("msp", "energy", "mirrored_energy", "relative_mahalanobis", "knn")
KEY = ("model", "detector", "dataset", "scenario", "side", "metric", "attack")
PACK = "npz:$ROOD_DATA/{}.npz"
FAR = {"svhn": PACK.format("svhn_test5k"), "dtd": PACK.format("dtd10_32")}
DIGITS = {"near": "digits:near", "patches": "digits:patches"}


@dataclass(frozen=True)
class Case:
    """A network, its images and its budget."""

    inside: str
    outside: dict[str, str]
    eps: str


def cifar(eps: str) -> Case:
    return Case(PACK.format("cifar10_test"), FAR, eps)


SIGNS = Case(PACK.format("gtsrb_test5k"), FAR, "1/255")
NUMBERS = Case(PACK.format("svhn_test5k"), {"dtd": FAR["dtd"]}, "1/255")
CASES = {
    "digits-ce": Case("digits:inside", DIGITS, "0.1"),
    "digits-aloe": Case("digits:inside", DIGITS, "0.1"),
    "gtsrb-ce": SIGNS,
    "gtsrb-oe": SIGNS,
    "gtsrb-adv": SIGNS,
    "gtsrb-aloe": SIGNS,
    "svhn-ce": NUMBERS,
    "svhn-oe": NUMBERS,
    "cifar10-ensemble-0": cifar("1/255"),
    "cifar10-ce": cifar("1/255"),
    "cifar10-oe": cifar("1/255"),
    "cifar10-adv": cifar("1/255"),
    "cifar10-aloe": cifar("1/255"),
    "cifar10-aloe-8": cifar("8/255"),
    "cifar10-adv-8": cifar("8/255"),
}


def measured(name: str, detectors: list[str], attack: str, limit: int) -> Iterator[Row]:
    """The attacked AUROCs of a network and the flags that belong to them."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        results = audit(
            name,
            detectors,
            inside=case.inside,
            outside=case.outside,
            threats=[case.eps],
            attack=attack,
            limit=limit,
            out=folder,
        )
        for row in results.rows:
            if row.scenario != CLEAN and (row.metric == "auroc" or row.verdict == "fail"):
                yield row


def measure(rows: Rows, name: str, detectors: list[str], attack: str, limit: int) -> None:
    """Write what an audit says of the detectors of a network, and print the counts."""
    found = list(measured(name, detectors, attack, limit))
    for row in found:
        rows.write(**asdict(row), attack=attack)
    aurocs = [r for r in found if r.metric == "auroc"]
    counts = {v: sum(r.verdict == v for r in aurocs) for v in ("pass", "warn", "fail")}
    print(f"{name:20s} {attack:8s} {len(aurocs)} AUROCs: {counts}", flush=True)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=list(CASES), metavar="NETWORK")
    parser.add_argument("--attack", choices=("quick", "standard"), default="quick")
    parser.add_argument("--detector", action="append", choices=DETECTORS, help="may be repeated")
    parser.add_argument("--limit", type=int, default=32, help="images per set")
    parser.add_argument("--out", type=Path, default=RESULTS / "honest.jsonl", help="file of rows")
    parser.add_argument("--join", type=Path, nargs="+", help="files of rows to add, instead")
    args = parser.parse_args(words)
    rows = Rows(args.out, KEY)
    for row in read(*args.join or ()):
        if not rows.has(**row):
            rows.write(**row)
    if args.join:
        return
    done = {(r["model"], r["detector"]) for r in read(args.out) if r["attack"] == args.attack}
    for name in args.networks:
        missing = [d for d in args.detector or DETECTORS if (name, d) not in done]
        if missing:
            measure(rows, name, missing, args.attack, args.limit)


if __name__ == "__main__":
    main()
