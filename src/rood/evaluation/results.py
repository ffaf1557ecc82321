"""What an audit leaves behind: a folder of rows, scores and examples, readable without torch.

rows.jsonl              one number a row
scores/…safetensors     `scores` (n,) of one detector on one image set, clean or attacked
examples/…safetensors   `original`, `attacked` (n, c, h, w) and their scores `before`, `after` (n,)
manifest.json           settings, versions, hashes of weights and data, hardware, cost
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Side = Literal["none", "inside", "outside", "both"]
Verdict = Literal["-", "pass", "warn", "fail"]  # "-": nothing was attacked, nothing to judge


@dataclass(frozen=True, kw_only=True)
class Row:
    """One number and everything needed to read it."""

    model: str
    detector: str  # "" where the number is the model's own (accuracy)
    dataset: str  # the outside set; the inside set for accuracy and threshold
    scenario: str  # "clean", or attack and threat: "pgd linf:0.1"
    side: Side  # who was attacked
    metric: str  # a name of rood.metrics, "accuracy", "threshold", or "flag_" and a finding
    value: float
    low: float | None  # 95 % interval
    high: float | None
    n_in: int
    n_out: int
    seed: int
    verdict: Verdict  # may the attack behind this number be believed

    def line(self) -> str:
        return json.dumps(asdict(self)) + "\n"


def read_rows(folder: Path) -> Iterator[Row]:
    """The rows of a results folder, in the order they were made."""
    with (folder / "rows.jsonl").open() as file:
        for line in file:
            if line.endswith("\n"):  # a last line without its end was cut off by a kill
                yield Row(**json.loads(line))


@dataclass(frozen=True)
class Results:
    """A results folder, as rows to look things up in."""

    folder: Path

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(read_rows(self.folder))

    def find(self, **fields: object) -> tuple[Row, ...]:
        """The rows whose fields are as given: find(detector="msp", side="both", metric="auroc")."""
        wanted = fields.items()
        return tuple(r for r in self.rows if all(getattr(r, k) == v for k, v in wanted))
