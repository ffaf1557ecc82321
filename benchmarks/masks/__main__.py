"""Audit every masked defence: its truth, what three attacks print, and which flags are raised.

    python -m benchmarks.masks              all but the held-out masks
    python -m benchmarks.masks --held-out   these alone
    python -m benchmarks.masks --only flip --only ripple --out DIR

24 digits a side, Linf 0.1, on a CPU. Rows go to docs/results/attack-masks*.jsonl; what is there is
not measured again. `make generate` makes the gallery in docs/evidence/attack-strength.md of them.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.masks import HELD_OUT, MASKS, tuned_on
from benchmarks.masks.base import EPS
from benchmarks.masks.truth import build, digits, noise_of, truth
from benchmarks.measure import RESULTS
from rood import audit
from rood.attacks import PGD, WorstOf
from rood.attacks.base import Attack
from rood.data import load
from rood.errors import RoodError
from rood.evaluation.rows import CLEAN, Row
from rood.threat import Linf
from rood_zoo.rows import Rows

THREAT = Linf(EPS)
KEY = ("detector", "scenario", "metric")  # of a row
ATTACKS: dict[str, Attack] = {
    "pgd": PGD(steps=40),
    "quick": WorstOf(tier="quick"),
    "standard": WorstOf(),
}


def truth_row(name: str, n: int) -> Row:
    """The AUROC that an attacker reaches who knows the mask."""
    return Row(
        model=MASKS[name].base,
        detector=name,
        dataset="near",
        scenario=f"truth {THREAT}",
        side="both",
        metric="auroc",
        value=truth(name, n, THREAT),
        low=None,
        high=None,
        n_in=n,
        n_out=n,
        seed=0,
        verdict="-",
    )


def audited(name: str, label: str, attack: Attack, n: int) -> Iterator[Row]:
    """What an audit of a fresh mask says of the attack on both sides: AUROC and flags."""
    images, mask = digits(n), build(name, n)
    with noise_of(0), tempfile.TemporaryDirectory() as folder:
        results = audit(
            mask.model,
            {name: mask},
            inside=images.inside,
            calibrate=load("digits:inside", limit=40),
            outside={"near": images.outside},
            threats=[THREAT],
            sides=["both"],
            attack=attack,
            name=MASKS[name].base,
            anyway=True,
            out=folder,
        )
        for row in results.rows:
            if row.scenario != CLEAN and (row.metric == "auroc" or row.metric.startswith("flag_")):
                yield replace(row, scenario=f"{label} {THREAT}")


def measure(name: str, n: int, rows: Rows) -> None:
    """Write what is missing of one mask; the AUROC comes last and marks an attack as done."""
    for label in ("truth", *ATTACKS):
        if rows.has(detector=name, scenario=f"{label} {THREAT}", metric="auroc"):
            continue
        start = time.perf_counter()
        try:
            attack = ATTACKS.get(label)
            found = [truth_row(name, n)] if attack is None else [*audited(name, label, attack, n)]
        except RoodError as error:
            print(f"{name:20s} {label:8s} {error}", flush=True)
            continue
        for row in sorted(found, key=lambda r: r.metric == "auroc"):
            rows.write(**asdict(row))
        print(
            f"{name:20s} {label:8s} {line(found)} {time.perf_counter() - start:4.0f} s", flush=True
        )


def line(found: list[Row]) -> str:
    """The AUROC, the verdict, and the flags that were raised."""
    auroc = next(r for r in found if r.metric == "auroc")
    raised = [
        f"{r.metric.removeprefix('flag_')}:{r.verdict}"
        for r in found
        if r.metric != "auroc" and r.verdict in ("warn", "fail")
    ]
    return f"{auroc.value:.3f} {auroc.verdict:4s} {' '.join(raised)}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--held-out", action="store_true", help="the held-out masks alone")
    parser.add_argument("--only", action="append", choices=MASKS, help="a mask; may be repeated")
    parser.add_argument("--n", type=int, default=24, help="images per side")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the rows")
    args = parser.parse_args()
    names = args.only or (HELD_OUT if args.held_out else tuned_on())
    for name in names:
        file = f"attack-masks{'-held-out' if name in HELD_OUT else ''}.jsonl"
        measure(name, args.n, Rows(args.out / file, KEY))


if __name__ == "__main__":
    main()
