"""Interleaved timing: what is compared runs in turns, so a busy machine disturbs both alike."""

import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Claim:
    """One bar: a measured ratio and what it must not exceed."""

    name: str
    ratio: float
    bar: float
    runs: int
    spread: float  # of the ratio over the runs: largest less smallest
    detail: str

    @property
    def holds(self) -> bool:
        return self.ratio <= self.bar


def ratio(ours: Callable[[], object], bare: Callable[[], object], runs: int) -> tuple[float, float]:
    """Median of ours / bare over interleaved runs, and its spread. One of each warms up first."""
    ours(), bare()
    found = []
    for _ in range(runs):
        found.append(seconds(ours) / seconds(bare))
    return statistics.median(found), max(found) - min(found)


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def report(claims: list[Claim], out: Path) -> None:
    """Print the table and write it as JSON, with the machine it was measured on."""
    for c in claims:
        mark = "holds" if c.holds else "MISSED"
        how = f"{c.detail}; n={c.runs}, spread {c.spread:.3f}"
        print(f"{c.name:40s} {c.ratio:6.3f}  bar {c.bar:5.2f}  {mark}  ({how})")
    machine = {
        "cpu": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    rows = [asdict(c) | machine for c in claims]
    out.write_text("".join(json.dumps(r) + "\n" for r in rows))
