"""`make bench`: measure every claim of this folder, each in a separate process.

`python -m benchmarks scoring attack` measures these alone. Rows go to docs/results, from which
`make generate` makes docs/evidence/performance.md.
"""

import os
import subprocess
import sys

from benchmarks.measure import PEERS, ROOT

HERE = (
    "start",
    "scoring",
    "guard",
    "attack",
    "fitting",
    "auditing",
    "growth",
    "ray_engine",
    "gpu",
    "certifying",
)
BESIDE = ("beside_pytorch_ood",)  # need the other library


def measure(name: str) -> int:
    """Run one script; its exit status, 0 where it cannot be run here."""
    python = str(PEERS) if name in BESIDE else sys.executable
    if not os.access(python, os.X_OK):
        print(f"{name}: not measured, `make peers` installs the other libraries", flush=True)
        return 0
    return subprocess.run([python, "-m", f"benchmarks.{name}"], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    wanted = sys.argv[1:] or [*HERE, *BESIDE]
    missed = [name for name in wanted if measure(name)]
    print(
        f"missed or failed: {', '.join(missed)}" if missed else "every bar that was measured holds"
    )
    sys.exit(bool(missed))
