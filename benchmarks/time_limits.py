"""Claim: `rood audit --time` ends before a fifth more than its limit has passed, on three networks.

    ROOD_DATA=DIR python -m benchmarks.time_limits [--at-once 3] [--time 1m ...] [NETWORK ...]

Wall clock of the command as a user starts it, Python's start and the page included, with the default
detectors; the command chooses attack and images. One thread for each audit. `--at-once` audits so many
networks at the same time, for which there must be cores. Three networks after each other take 42 minutes.
"""  # noqa: E501

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.honest import CASES
from benchmarks.measure import ROOT, Claim, Point, report, seconds
from rood.evaluation.deadline import seconds as limit

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
        call = lambda: subprocess.run([*command, *more], cwd=ROOT, env=env, check=True)
        took = seconds(call)
        choice = json.loads((out / "manifest.json").read_text())["time"]
    point = {"network": network, "limit": asked, "seconds": round(took, 1)}
    point |= {"share": round(took / limit(asked), 3), **_chosen(choice)}
    print(json.dumps(point), flush=True)
    return point


def _chosen(choice: dict[str, Any]) -> Point:
    """What the command made of its time."""
    options = choice["attack_options"]
    how = options.get("tier") or f"{options.get('steps')} steps"
    without = {*choice["dropped"], *(d for d, _ in choice["left_out"])}
    return {
        "attack": f"{choice['attack']} {how}",
        "images": choice["limit"],
        "detectors": len({*choice["detectors"]} - without),
        "left out": len(without),
    }


def claims(
    networks: Sequence[str] = NETWORKS, limits: Sequence[str] = LIMITS, at_once: int = 1
) -> list[Claim]:
    """For each limit, the network that took most of it."""
    with ThreadPoolExecutor(at_once) as pool:
        found = list(pool.map(lambda n: [audited(n, asked) for asked in limits], networks))
    made = []
    for points in zip(*found, strict=True):
        shares = [p["share"] for p in points]
        asked = points[0]["limit"]
        made.append(
            Claim(
                f"rood audit --time {asked}: time taken / limit, the slowest network",
                max(shares),
                BAR,
                len(points),
                max(shares) - min(shares),
                f"{', '.join(networks)}; default detectors, {at_once} audits at once",
                points=points,
            )
        )
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NETWORK")
    parser.add_argument("--time", nargs="+", default=LIMITS)
    parser.add_argument("--at-once", type=int, default=1)
    args = parser.parse_args()
    sys.exit(report("time-limits", claims(args.networks, args.time, args.at_once)))
