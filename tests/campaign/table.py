"""What is counted: one case, its verdict, and the table of all."""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

COLUMNS = (
    "clean error",  # one sentence and exit code 1
    "identical",  # ended as if nothing had happened
    "other input",  # a valid file of the user's own that says something else
    "traceback",
    "silently wrong",  # exit code 0 and other numbers, or something written outside the folder
    "hang",
)
BAD = ("traceback", "silently wrong", "hang")
MEMORY = 300 << 20  # bytes above the idle process that a refusal may take


@dataclass(frozen=True)
class Verdict:
    """How one case ended."""

    kind: str  # one of COLUMNS
    said: str = ""
    memory: int = 0  # bytes above idle, of a refusal


@dataclass(frozen=True)
class Case:
    """One thing to try."""

    group: str  # "inputs", "kills", "flips", "faults" or "together"
    row: str  # the line of the table
    name: str
    judge: Callable[[], Verdict]

    def tried(self) -> dict[str, Any]:
        """Judge it; what is to be written down."""
        start = _cpu()
        verdict = self.judge()
        assert verdict.kind in COLUMNS, verdict
        found = {"group": self.group, "row": self.row, "name": self.name, "kind": verdict.kind}
        said = verdict.said if verdict.kind in BAD else ""
        if len(said) > 2500:
            said = f"{said[:700]}\n...\n{said[-1800:]}"
        return found | {"said": said, "memory": verdict.memory, "cpu": round(_cpu() - start, 3)}


def _cpu() -> float:
    """Seconds of this process and of those that it has waited for."""
    return sum(os.times()[:4])


@dataclass
class Table:
    """The counts of a campaign, row by row."""

    counts: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    memory: int = 0  # the most that a refusal has taken
    cpu: Counter[tuple[str, str]] = field(default_factory=Counter)  # seconds
    bad: list[dict[str, Any]] = field(default_factory=list)

    def add(self, found: dict[str, Any]) -> None:
        """Count one case."""
        row = self.counts.setdefault((found["group"], found["row"]), Counter())
        row[found["kind"]] += 1
        self.cpu[found["group"], found["row"]] += found["cpu"]
        self.memory = max(self.memory, found["memory"])
        if found["kind"] in BAD or found["memory"] > MEMORY:
            self.bad.append(found)

    def rows(self) -> list[dict[str, Any]]:
        """One record for each line of the table."""
        return [
            {"group": key[0], "row": key[1], "tried": counts.total()}
            | {k: counts[k] for k in COLUMNS}
            | {"cpu_seconds": round(self.cpu[key], 1)}
            for key, counts in sorted(self.counts.items())
        ]

    def passed(self) -> bool:
        """Whether something was tried and nothing went wrong."""
        return bool(self.counts) and not self.bad

    def __str__(self) -> str:
        shown = ("tried", *COLUMNS, "cpu_seconds")
        lines = [("", *(c.replace("_", " ") for c in shown))]
        for r in [*self.rows(), *totals(self.rows())]:
            name = f"{r['group']}: {r['row']}" if r["row"] else f"{r['group']}, all"
            lines.append((name, *(str(r[k]) for k in shown)))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join(
                c.ljust(w) if i == 0 else c.rjust(w)
                for i, (c, w) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        ]
        text.append(f"most memory of a refusal: {self.memory / 2**20:.0f} MB above idle")
        return "\n".join(text)


def totals(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The sums of each group."""
    sums: dict[str, Counter[str]] = {}
    counted = ("tried", *COLUMNS, "cpu_seconds")
    for r in rows:
        sums.setdefault(r["group"], Counter()).update({k: r[k] for k in counted})
    return [{"group": g, "row": ""} | {k: round(c[k], 1) for k in counted} for g, c in sums.items()]
