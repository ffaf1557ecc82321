"""Run the campaign: PYTHONPATH=tests:tests/helpers python -m campaign [GROUP ...] [--share 0.1]."""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from campaign import faults, flips, kills, sandbox, surfaces, together
from campaign.forked import shared_out, warm_up
from campaign.table import Case, Table
from campaign.world import World, build

ROOT = Path(__file__).resolve().parents[2]
GROUPS = ("inputs", "kills", "flips", "faults", "together")
FLIPS = 420


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
    warm_up()
    world = build(sandbox.SCRATCH / "campaign")
    passed = True
    for group in options.groups or GROUPS:
        start = time.monotonic()
        table = _tried(world, group, options)
        minutes = round((time.monotonic() - start) / 60, 1)
        print(f"\n{table}\n{minutes} minutes, {options.workers} workers", flush=True)
        facts = {"memory": table.memory, "minutes": minutes, "share": options.share}
        _keep([*table.rows(), {"group": group, "row": "", **facts, "workers": options.workers}])
        passed &= table.passed()
    return 0 if passed else 1


def _tried(world: World, group: str, options: argparse.Namespace) -> Table:
    chosen = [c for c in _cases(world, group) if options.row in c.row]
    some = chosen[:: max(1, round(1 / options.share))]
    print(f"{group}: {len(some)} cases", flush=True)
    table = Table()
    for found in shared_out(some, Case.tried, options.workers):
        table.add(found)
        if table.bad and table.bad[-1] is found:
            what = f"{found['kind']}: {found['row']}: {found['name']}"
            print(f"--- {what}\n{found['said']}", flush=True)
    return table


def _keep(rows: list[dict[str, Any]]) -> None:
    """Write the rows of a group beside those of others, into a file that was opened outside."""
    if sandbox.ROWS not in os.environ:
        return
    with os.fdopen(os.dup(int(os.environ[sandbox.ROWS])), "a+") as file:
        file.seek(0)
        kept = [r for r in map(json.loads, file) if r["group"] != rows[0]["group"]]
        file.truncate(0)
        file.writelines(json.dumps(r) + "\n" for r in [*kept, *rows])


def _cases(world: World, group: str) -> Iterator[Case]:
    if group in ("inputs", "flips") and not (world.root / "interrupted").exists():
        flips.interrupt(world)
    return {
        "inputs": lambda: surfaces.cases(world),
        "kills": lambda: kills.cases(world),
        "flips": lambda: flips.cases(world, FLIPS),
        "faults": lambda: faults.cases(world),
        "together": lambda: together.cases(world),
    }[group]()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
