"""Claim: `rood --help` answers in half a second and does not load torch."""

import subprocess
import sys

from benchmarks.measure import Claim, report, seconds

HELP = [sys.executable, "-c", "from rood.cli import app; app(['--help'])"]


def claims(runs: int = 5) -> list[Claim]:
    call = lambda: subprocess.run(HELP, check=True, capture_output=True)
    call()
    found = sorted(seconds(call) for _ in range(runs))
    return [Claim("rood --help, seconds", found[runs // 2], 0.5, runs, found[-1] - found[0], "")]


if __name__ == "__main__":
    sys.exit(report("start", claims()))
