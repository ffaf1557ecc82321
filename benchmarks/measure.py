"""Interleaved timing: calls run in turns, so that a busy machine slows all of them alike."""

import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from rood.version import __version__

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
PEERS = ROOT / ".venv-peers" / "bin" / "python"  # where `make peers` puts the other libraries

Call = Callable[[], object]
Point = dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """One bar: a measured number, and what it must not exceed."""

    name: str
    value: float
    bar: float
    runs: int
    spread: float  # of the value over the runs: largest less smallest
    detail: str
    at_least: bool = False  # the bar is what it must reach
    points: tuple[Point, ...] = ()  # what the value was taken from, where a table shows it

    @property
    def holds(self) -> bool:
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    def line(self) -> str:
        mark = "holds" if self.holds else "MISSED"
        bar = f"{'at least' if self.at_least else 'at most'} {self.bar:g}"
        how = f"{self.detail}; n={self.runs}, spread {self.spread:.3f}"
        return f"{self.name:48s} {self.value:8.3f}  {bar:13s} {mark}  ({how})"


def times(calls: Mapping[str, Call], runs: int) -> dict[str, list[float]]:
    """Seconds of every call in every run, after one call each to warm up; the order rotates."""
    for call in calls.values():
        call()
    found: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for i in range(runs):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            found[name].append(seconds(calls[name]))
    return found


def ratio(ours: Call, bare: Call, runs: int) -> tuple[float, float]:
    """Median of ours / bare, run by run, and its spread."""
    found = times({"ours": ours, "bare": bare}, runs)
    return of(found["ours"], found["bare"])


def of(ours: Sequence[float], bare: Sequence[float]) -> tuple[float, float]:
    """Median and spread of the ratio of what was measured in turns."""
    return middle([a / b for a, b in zip(ours, bare, strict=True)])


def middle(values: Sequence[float]) -> tuple[float, float]:
    """Median and spread, largest less smallest."""
    return statistics.median(values), max(values) - min(values)


def apart(module: str, *arguments: object, python: Path | str = sys.executable) -> Point:
    """The point that a script of this folder prints last, run in a process of its own."""
    command = [str(python), "-m", f"benchmarks.{module}", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    point: Point = json.loads(done.stdout.splitlines()[-1])
    return point


def seconds(call: Call) -> float:
    start = time.perf_counter()
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def conditions() -> dict[str, Any]:
    """When and with what the peers were measured."""
    threads = torch.get_num_threads()
    return {
        "date": datetime.date.today().isoformat(),
        "rood": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "hardware": f"{platform.machine()} CPU, {threads} of {os.cpu_count()} cores",
    }


def machine() -> dict[str, Any]:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "rood": __version__,
        "date": datetime.date.today().isoformat(),
    }


def report(name: str, claims: Sequence[Claim], run: Point | None = None) -> int:
    """Print every bar and its points, and write them as rows; 1 where a bar is missed.

    `run` is the machine that measured them, this one if it is not given.
    """
    for c in claims:
        print(c.line())
        for point in c.points:
            print(f"    {json.dumps(point)}")
    rows = [{"run": run or machine()}, *(asdict(c) | {"holds": c.holds} for c in claims)]
    text = "".join(json.dumps(r) + "\n" for r in rows)
    (RESULTS / f"performance-{name}.jsonl").write_text(text)
    return 0 if all(c.holds for c in claims) else 1
