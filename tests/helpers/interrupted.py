"""Run one audit that is killed again and again: python interrupted.py FILES OUT SEED KILLS.

Every attempt is a process of its own, forked here so that torch is imported once. It is killed with
SIGKILL a random number of steps after its start, and a random moment later.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from rood.evaluation.prepare import plan_audit
from rood.evaluation.run import run
from rood.evaluation.settings import AuditSettings

torch.set_num_threads(1)


def attempt(settings: AuditSettings, out: Path, patience: int | None, pause: float) -> int:
    """Work in a child; kill it `pause` seconds after `patience` steps. Its wait status."""
    seen, said = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for _ in run(plan_audit(settings), out):
                os.write(said, b".")
            os._exit(0)
        finally:
            os._exit(1)
    os.close(said)
    steps = 0
    while os.read(seen, 1):
        steps += 1
        if steps == patience:
            time.sleep(pause)
            os.kill(child, signal.SIGKILL)
    os.close(seen)
    return os.waitpid(child, 0)[1]


def settings(files: str) -> AuditSettings:
    return AuditSettings(
        models=(f"{files}/net.safetensors",),
        inside=f"npz:{files}/inside.npz",
        outside={"stripes": f"npz:{files}/stripes.npz", "grey": f"npz:{files}/grey.npz"},
        detectors=("msp", "knn", "energy"),
        threats=("linf:0.01", "linf:0.05"),
        attack_options={"steps": 10},
        limit=16,
        batch_size=8,
        device="cpu",
    )


def main(files: str, out: str, seed: str, kills: str) -> None:
    rng = random.Random(int(seed))
    for _ in range(int(kills)):
        status = attempt(settings(files), Path(out), rng.randint(4, 8), rng.uniform(0, 0.02))
        rows = Path(out, "rows.jsonl")
        lines = rows.read_bytes().count(b"\n") if rows.exists() else 0
        print("killed" if os.WIFSIGNALED(status) else "finished", lines, flush=True)
    print("finished" if attempt(settings(files), Path(out), None, 0) == 0 else "failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
