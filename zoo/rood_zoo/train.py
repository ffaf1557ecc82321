"""Train networks of the zoo, one after the other or several at once; cut off, it goes on.

    python -m rood_zoo.train 'cifar10-*' gtsrb-aloe --out DIR [--jobs 2] [--compile]

writes DIR/NAME.safetensors (float16), DIR/NAME.json and, meanwhile, a state after each epoch. What
is there and whole is not trained again. The data is where ROOD_CIFAR10 and ROOD_DATA say; what is
missing is said in a line, and the others are trained all the same.
"""

import argparse
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from rood._device import pick_device
from rood.errors import CheckpointError, InputError, RoodError
from rood.models import checkpoint
from rood.training.recipes import RECIPES, run_recipe


def chosen(patterns: list[str]) -> list[str]:
    """The recipes that the patterns name, in their order, each once."""
    names: dict[str, None] = {}
    for pattern in patterns:
        found = [name for name in RECIPES if fnmatchcase(name, pattern)]
        if not found:
            raise InputError(f"expected recipes for {pattern!r}, got none of {', '.join(RECIPES)}")
        names |= dict.fromkeys(found)
    return list(names)


def whole(weights: Path) -> bool:
    """Whether a network is there with its card; what a kill left of one is put away."""
    if not weights.exists():
        return False
    try:
        checkpoint.load(weights)
    except CheckpointError:
        weights.unlink()
        return False
    return True


def train_one(name: str, out: Path, device: str, compiled: bool = False) -> bool:
    """Train and write one network; whether that went well."""
    recipe = RECIPES[name]
    settings = replace(recipe.settings, compile=compiled)
    RECIPES[name] = replace(recipe, settings=settings)
    weights = out / f"{name}.safetensors"
    start = time.perf_counter()
    try:
        if not whole(weights):
            for e in run_recipe(name, weights, device=pick_device(device), half=True):
                told = "" if e.accuracy is None else f" accuracy {e.accuracy:.4f}"
                line = f"{name} {e.epoch}/{e.epochs} loss {e.loss:.4f}{told} {e.seconds:.2f} s"
                print(line, flush=True)
        facts = checkpoint.read_card(weights)["training"]
        shutil.rmtree(f"{weights}.training", ignore_errors=True)  # what a kill at the end left
    except RoodError as e:
        print(f"{name} failed: {e}", flush=True)
        return False
    took = time.perf_counter() - start
    print(f"{name} done: accuracy {facts['accuracy']}, {took:.0f} s, {weights}", flush=True)
    return True


def train_at_once(
    names: list[str], out: Path, device: str, compiled: bool, jobs: int
) -> list[bool]:
    """A process for each network, `jobs` of them at a time."""
    command = [sys.executable, "-m", "rood_zoo.train", "--out", str(out), "--device", device]
    command += ["--compile"] if compiled else []
    waiting, running, results = list(names), [], []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(subprocess.Popen([*command, waiting.pop(0)]))
            time.sleep(0.2)
            results += [p.returncode == 0 for p in running if p.poll() is not None]
            running = [p for p in running if p.returncode is None]
    finally:
        for process in running:
            process.terminate()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", help="recipes, or patterns such as 'gtsrb-*'")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--compile", action="store_true", help="torch.compile the networks")
    args = parser.parse_args()
    try:
        names = chosen(args.names)
    except RoodError as e:
        sys.exit(str(e))
    args.out.mkdir(parents=True, exist_ok=True)
    if args.jobs > 1 and len(names) > 1:
        good = train_at_once(names, args.out, args.device, args.compile, args.jobs)
    else:
        good = [train_one(name, args.out, args.device, args.compile) for name in names]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
