"""Train networks of the zoo, one after the other or several at once.

    python -m rood_zoo.train 'cifar10-*' gtsrb-aloe --out DIR [--jobs 2] [--compile]

writes DIR/NAME.safetensors (float16) and DIR/NAME.json, and a state after each epoch: the same
command continues an interrupted run and skips what is complete. The data is where ROOD_CIFAR10 and
ROOD_DATA say; a network whose data is missing is reported, and the others are trained.
"""

import argparse
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from rood.device import pick_device
from rood.errors import CheckpointError, InputError, RoodError
from rood.models import checkpoint
from rood.training import job, recipe


def chosen(patterns: list[str], known: list[str]) -> list[str]:
    """The names that the patterns match, in their order, each once."""
    names: dict[str, None] = {}
    for pattern in patterns:
        found = [name for name in known if fnmatchcase(name, pattern)]
        if not found:
            raise InputError(f"expected networks for {pattern!r}, got none of {', '.join(known)}")
        names |= dict.fromkeys(found)
    return list(names)


def complete(weights: Path) -> bool:
    """Whether a network is there with its card; an incomplete one is removed."""
    if not weights.exists():
        return False
    try:
        checkpoint.load(weights)
    except CheckpointError:
        weights.unlink()
        return False
    return True


def train_one(name: str, out: Path, device: str, compiled: bool = False) -> bool:
    """Train and write one network; returns whether it succeeded."""
    weights = out / f"{name}.safetensors"
    start = time.perf_counter()
    try:
        if not complete(weights):
            wanted = recipe.get(name)
            wanted = replace(wanted, settings=replace(wanted.settings, compile=compiled))
            again = recipe.command(name)
            for e in job.run(wanted, weights, again, device=pick_device(device), half=True):
                told = "" if e.accuracy is None else f" accuracy {e.accuracy:.4f}"
                line = f"{name} {e.epoch}/{e.epochs} loss {e.loss:.4f}{told} {e.seconds:.2f} s"
                print(line, flush=True)
        facts = checkpoint.read_card(weights)["training"]
        shutil.rmtree(f"{weights}.training", ignore_errors=True)  # left by a kill after training
    except RoodError as e:
        print(f"{name} failed: {e}", flush=True)
        return False
    took = time.perf_counter() - start
    print(f"{name} done: accuracy {facts['accuracy']}, {took:.0f} s, {weights}", flush=True)
    return True


def train_alone(name: str, out: Path, device: str, compiled: bool) -> bool:
    """As `train_one`, in a process of its own."""
    command = [sys.executable, "-m", "rood_zoo.train", "--out", str(out), "--device", device]
    command += ["--compile"] if compiled else []
    return subprocess.run([*command, name], check=False).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", help="recipes, or patterns such as 'gtsrb-*'")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1, help="networks trained at the same time")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--compile", action="store_true", help="torch.compile the networks")
    args = parser.parse_args()
    try:
        names = chosen(args.names, recipe.names())
    except RoodError as e:
        sys.exit(str(e))
    args.out.mkdir(parents=True, exist_ok=True)
    train = train_alone if args.jobs > 1 and len(names) > 1 else train_one
    with ThreadPoolExecutor(max_workers=max(1, args.jobs)) as pool:
        good = pool.map(lambda name: train(name, args.out, args.device, args.compile), names)
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
