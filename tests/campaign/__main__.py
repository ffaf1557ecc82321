"""Run the campaign: PYTHONPATH=tests:tests/helpers python -m campaign [GROUP ...] [--share 0.1]."""

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from campaign import faults, flips, kills, sandbox, surfaces, together
from campaign.forked import shared_out
from campaign.table import Case, Table
from campaign.world import World, build

ROOT = Path(__file__).resolve().parents[2]
GROUPS = ("inputs", "kills", "flips", "faults", "together")
INPUTS, FLIPS = 10_500, 420


def main(arguments: list[str]) -> int:
    """The exit code: 0 where nothing but errors and identical results came of it."""
    options = _options().parse_args(arguments)
    if sandbox.INSIDE not in os.environ:
        return sandbox.enter(arguments, options.rows)
    if not sandbox.is_closed(ROOT):
        print(sandbox.REFUSAL.format("files outside can be written"), file=sys.stderr)
        return 1
    return _campaign(options)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="campaign")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--share", type=float, default=1.0, help="Of the cases, evenly spaced.")
    parser.add_argument("--row", default="", help="Only rows whose name contains this.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rows", type=Path, help="File for the rows of the table.")
    return parser


def _campaign(options: argparse.Namespace) -> int:
    _warm_up()
    start = time.monotonic()
    world = build(sandbox.SCRATCH / "campaign")
    chosen = [c for g in options.groups or GROUPS for c in _cases(world, g) if options.row in c.row]
    some = chosen[:: max(1, round(1 / options.share))]
    print(f"{len(some)} cases", flush=True)
    table = Table()
    for found in shared_out(some, Case.tried, options.workers):
        table.add(found)
        if table.bad and table.bad[-1] is found:
            print(
                f"--- {found['kind']}: {found['row']}: {found['name']}\n{found['said']}", flush=True
            )
    minutes = (time.monotonic() - start) / 60
    print(f"\n{table}\n{minutes:.1f} minutes, {options.workers} workers")
    facts = {"memory": table.memory, "minutes": round(minutes, 1), "share": options.share}
    if sandbox.ROWS in os.environ:  # a file that was opened outside
        with os.fdopen(int(os.environ[sandbox.ROWS]), "w") as file:
            file.writelines(json.dumps(r) + "\n" for r in [*table.rows(), {"group": "", **facts}])
    return 0 if table.passed() else 1


def _cases(world: World, group: str) -> Iterator[Case]:
    if group in ("inputs", "flips") and not (world.root / "interrupted").exists():
        flips.interrupt(world)
    return {
        "inputs": lambda: surfaces.cases(world, INPUTS),
        "kills": lambda: kills.cases(world),
        "flips": lambda: flips.cases(world, FLIPS),
        "faults": lambda: faults.cases(world),
        "together": lambda: together.cases(world),
    }[group]()


def _warm_up() -> None:
    """Import once what every child needs; torch alone takes seconds."""
    for name in ("ROOD_DATA", "ROOD_CIFAR10", "ROOD_ZOO", "ROOD_CACHE"):
        os.environ.pop(name, None)
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch

    import rood_papers.framework.run  # noqa: F401

    torch.set_num_threads(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
