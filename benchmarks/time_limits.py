"""Claim: `rood audit --time` ends before a fifth more than its limit has passed, on three networks.

    ROOD_DATA=DIR python -m benchmarks.time_limits [--at-once 3] [--time 1m ...] [--out FILE] [NETWORK ...]
    python -m benchmarks.time_limits --join FILE ...

Wall clock of the command as a user starts it, Python's start and the page included, with the default
detectors; the command chooses attack and images, or refuses a limit that is too short. One thread for each audit. `--at-once` audits so many
networks at the same time, for which there must be cores. Three networks after each other take 42 minutes.
Runs side by side write their points to files of their own, which `--join` judges together.
"""  # noqa: E501

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.honest import CASES
from benchmarks.measure import ROOT, Claim, Point, machine, report, seconds
from rood.evaluation.deadline import seconds as limit
from tools.markdown import read

BAR = 1.2
LIMITS = ("1m", "3m", "10m")
NETWORKS = ("digits-ce", "gtsrb-ce", "cifar10-aloe")


def audited(network: str, asked: str) -> Point:
    """One audit, in a process of its own."""
    case = CASES[network]
    outside = [f"--outside={name}={spec}" for name, spec in case.outside.items()]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "audit"
        options = ["--model", network, f"--inside={case.inside}", *outside, "--eps", case.eps]
        command = [sys.executable, "-m", "rood", "audit", *options, "--time", asked]
        more = ["--out", str(out), "--device", "cpu", "--quiet"]
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        ran: list[subprocess.CompletedProcess[str]] = []
        call = lambda: ran.append(
            subprocess.run([*command, *more], cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True)
        )
        took = seconds(call)
        found = _refused(ran[0].stderr) if ran[0].returncode else _chosen(out)
    point = {"network": network, "limit": asked, "seconds": round(took, 1)}
    point |= {"share": round(took / limit(asked), 3), **found}
    print(json.dumps(point), flush=True)
    return point


def _refused(said: str) -> Point:
    """The limit that the command asks for, where it refuses the one given; else its error."""
    least = re.search(r"expected a time limit of at least (\w+)", said)
    if least is None:
        raise RuntimeError(said)
    return {"attack": f"refused: needs {least[1]}", "images": 0, "detectors": 0, "left out": 0}


def _chosen(out: Path) -> Point:
    """What the command made of its time."""
    choice: dict[str, Any] = json.loads((out / "manifest.json").read_text())["time"]
    options = choice["attack_options"]
    how = options.get("tier") or f"{options.get('steps')} steps"
    without = {*choice["dropped"], *(d for d, _ in choice["left_out"])}
    return {
        "attack": f"{choice['attack']} {how}",
        "images": choice["limit"],
        "detectors": len({*choice["detectors"]} - without),
        "left out": len(without),
    }


def measured(networks: Sequence[str], limits: Sequence[str], at_once: int) -> list[Point]:
    """Every network at every limit."""
    with ThreadPoolExecutor(at_once) as pool:
        found = pool.map(lambda n: [audited(n, asked) for asked in limits], networks)
        return [point for points in found for point in points]


def claims(points: Sequence[Point]) -> list[Claim]:
    """For each limit, the network that took most of it."""
    of_limit: dict[str, list[Point]] = {}
    for point in sorted(points, key=lambda p: limit(p["limit"])):
        of_limit.setdefault(point["limit"], []).append(point)
    return [_claim(asked, runs) for asked, runs in of_limit.items()]


def _claim(asked: str, runs: Sequence[Point]) -> Claim:
    shares = [p["share"] for p in runs]
    return Claim(
        f"rood audit --time {asked}: time taken / limit, the slowest network",
        max(shares),
        BAR,
        len(runs),
        max(shares) - min(shares),
        f"{', '.join(p['network'] for p in runs)}; default detectors, a core for each audit",
        points=tuple(runs),
    )


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NETWORK")
    parser.add_argument("--time", nargs="+", default=LIMITS)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the points to this file alone")
    parser.add_argument("--join", type=Path, nargs="+", help="files of points, instead of runs")
    args = parser.parse_args(words)
    if args.join:
        points = read(*args.join)
        runs = [point.pop("run") for point in points]
        return report("time-limits", claims(points), runs[0])
    points = measured(args.networks, args.time, args.at_once)
    if args.out is None:
        return report("time-limits", claims(points))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("".join(json.dumps(p | {"run": machine()}) + "\n" for p in points))
    return 0


if __name__ == "__main__":
    sys.exit(main())
