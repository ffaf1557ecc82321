"""What the generated pages share: rows read from JSON lines, tables and numbers."""

import html
import json
import re
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


def folded(text: str, most: int = 100) -> str:
    """The page with each table of more than `most` words behind a line that opens it."""

    def fold(found: re.Match[str]) -> str:
        if len(found[0].replace("|", " ").split()) <= most:
            return found[0]
        head, _, *rows = found[0].splitlines()
        columns = [cell for part in head.split("|") if (cell := part.replace("`", "").strip())]
        first = ", ".join(columns[:5]) + ", …" * (len(columns) > 5)
        line = html.escape(f"{len(rows)} rows: {first}", quote=False)
        return f"<details><summary>{line}</summary>\n\n{found[0].rstrip()}\n\n</details>\n"

    whole = r"(?<!</summary>\n\n)(?<!\|\n)(?:^\|.*(?:\n|\Z))+"  # and not folded already
    return re.sub(whole, fold, text, flags=re.MULTILINE)


def percent(value: Interval | float | None, *, interval: bool = False) -> str:
    """Per cent with two digits, as papers print them; – for what was not measured."""
    if value is None:
        return "–"
    if not isinstance(value, Interval):
        return f"{100 * value:.2f}"
    ends = f" [{100 * value.low:.2f}, {100 * value.high:.2f}]" if interval else ""
    return f"{100 * value.value:.2f}{ends}"
