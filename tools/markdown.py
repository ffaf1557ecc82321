"""What the generated pages share: rows read from JSON lines, tables and numbers."""

import json
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rood.metrics import Interval

RESULTS = Path(__file__).parent.parent / "docs" / "results"
Row = dict[str, Any]


def texts(page: str) -> dict[str, Any]:
    """The prose and printed numbers of a page, which stand beside the module that fills it in."""
    return tomllib.loads((Path(__file__).parent / f"{page}.toml").read_text(encoding="utf-8"))


def read(*paths: Path) -> list[Row]:
    """The rows of all files that there are."""
    return [json.loads(line) for p in paths if p.exists() for line in p.read_text().splitlines()]


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(r)} |" for r in rows)


def percent(value: Interval | float | None, *, interval: bool = False) -> str:
    """Per cent with two digits, as papers print them; – for what was not measured."""
    if value is None:
        return "–"
    if not isinstance(value, Interval):
        return f"{100 * value:.2f}"
    ends = f" [{100 * value.low:.2f}, {100 * value.high:.2f}]" if interval else ""
    return f"{100 * value.value:.2f}{ends}"
