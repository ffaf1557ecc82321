"""What is counted: one case, its verdict, and the table of all."""

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
        verdict = self.judge()
        assert verdict.kind in COLUMNS, verdict
        found = {"group": self.group, "row": self.row, "name": self.name, "kind": verdict.kind}
        said = verdict.said[-2500:] if verdict.kind in BAD else ""
        return found | {"said": said, "memory": verdict.memory}


@dataclass
class Table:
    """The counts of a campaign, row by row."""

    counts: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    memory: int = 0  # the most that a refusal has taken
    bad: list[dict[str, Any]] = field(default_factory=list)

    def add(self, found: dict[str, Any]) -> None:
        """Count one case."""
        row = self.counts.setdefault((found["group"], found["row"]), Counter())
        row[found["kind"]] += 1
        self.memory = max(self.memory, found["memory"])
        if found["kind"] in BAD or found["memory"] > MEMORY:
            self.bad.append(found)

    def rows(self) -> list[dict[str, Any]]:
        """One record for each line of the table."""
        return [
            {"group": group, "row": row, "tried": counts.total()} | {k: counts[k] for k in COLUMNS}
            for (group, row), counts in sorted(self.counts.items())
        ]

    def passed(self) -> bool:
        """Whether something was tried and nothing went wrong."""
        return bool(self.counts) and not self.bad

    def __str__(self) -> str:
        lines = [("", "tried", *COLUMNS)]
        for r in [*self.rows(), *totals(self.rows())]:
            name = f"{r['group']}: {r['row']}" if r["row"] else f"{r['group']}, all"
            lines.append((name, str(r["tried"]), *(str(r[k]) for k in COLUMNS)))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = [
            "  ".join(
                c.ljust(w) if i == 0 else c.rjust(w)
                for i, (c, w) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        ]
        shown.append(f"most memory of a refusal: {self.memory / 2**20:.0f} MB above idle")
        return "\n".join(shown)


def totals(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The sums of each group."""
    sums: dict[str, Counter[str]] = {}
    for r in rows:
        counts = sums.setdefault(r["group"], Counter())
        counts.update({k: r[k] for k in ("tried", *COLUMNS)})
    return [
        {"group": g, "row": ""} | {k: c[k] for k in ("tried", *COLUMNS)} for g, c in sums.items()
    ]
