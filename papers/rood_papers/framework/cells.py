"""One number of a paper beside ours: what every experiment writes, and all that the page reads."""

import os
from collections.abc import Iterable
from dataclasses import KW_ONLY, asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from rood.errors import ResultsError
from rood.evaluation.store import read_lines
from rood.metrics import Interval

# cell: a number of a table; point: one of a figure; claim: a sentence tested; image: a picture
Kind = Literal["cell", "point", "claim", "image"]

T = TypeVar("T")

LOSS = "loss of the median image, as a share of its first"  # along an attack


@dataclass(frozen=True)
class Cell:
    """One number, or the reason why there is none. Shares are from 0 to 1, never per cent."""

    experiment: str  # "aloe/table1"
    row: str  # the method, as the paper's table names it: "ALOE+ODIN"
    column: str  # the data set or setting: "cifar10, 1/255"
    metric: str  # "auroc", "fpr95_in", ...; of a point: the curve's vertical axis
    _: KW_ONLY
    attack: str = "clean"  # clean, paper, official, standard
    kind: Kind = "cell"
    paper: float | None = None  # None: the paper prints no number
    ours: float | None = None  # None: not run, the note says why
    low: float | None = None  # of a 95 % interval
    high: float | None = None
    n_in: int = 0
    n_out: int = 0
    network: str = ""  # the one that was run, by name
    x: float | None = None  # of a point: where on the horizontal axis
    group: str = ""  # of a point: which curve
    file: str = ""  # of an image: its path in the results folder
    note: str = ""  # why the numbers may differ; slips of the paper
    part: str = ""  # the part of the experiment it came from; filled in by the runner

    def found(self, value: float | Interval, n_in: int = 0, n_out: int = 0, **facts: Any) -> "Cell":
        """The same cell with our number in it."""
        names = ("ours", "low", "high") if isinstance(value, Interval) else ("ours",)
        values = value if isinstance(value, Interval) else (value,)
        bounds: dict[str, Any] = dict(zip(names, map(float, values), strict=True))
        return replace(self, n_in=n_in, n_out=n_out, **bounds, **facts)

    def not_run(self, why: str) -> "Cell":
        """The same cell without a number."""
        note = f"not run: {why}"
        return replace(self, ours=None, note=f"{note}; {self.note}" if self.note else note)

    @property
    def interval(self) -> Interval | None:
        """Our number with its ends; as its own ends where it has none."""
        if self.ours is None:
            return None
        ends = (self.ours if v is None else v for v in (self.low, self.high))
        return Interval(self.ours, *ends)

    def as_json(self) -> dict[str, Any]:
        """Only what says something; `Cell(**as_json())` gives the row back."""
        plain = {f.name: f.default for f in fields(self)}
        same = lambda k, v: v == plain[k] and (v is None) == (plain[k] is None)
        return {k: v for k, v in asdict(self).items() if k == "ours" or not same(k, v)}


def point(experiment: str, group: str, column: str, metric: str, attack: str) -> Cell:
    """A point of the curve `group`, still without a number."""
    return Cell(experiment, group, column, metric, attack=attack, kind="point", group=group)


def found(rows: Iterable[Cell], **facts: object) -> Cell | None:
    """The first row that has all these facts and a number of ours."""
    known = (r for r in rows if r.ours is not None)
    return next((r for r in known if all(getattr(r, k) == v for k, v in facts.items())), None)


def ours(rows: Iterable[Cell], **facts: object) -> float | None:
    """Our number of that row."""
    row = found(rows, **facts)
    return None if row is None else row.ours


def interval(rows: Iterable[Cell], **facts: object) -> Interval | None:
    """Our number of that row, with its ends."""
    row = found(rows, **facts)
    return None if row is None else row.interval


def read_rows(path: Path) -> list[Cell]:
    """All rows of a file; a line that a kill cut off is left out."""
    return read_all(path, Cell)


def read_all(path: Path, kind: type[T]) -> list[T]:
    """Every complete line of a file as a `kind`; none where there is no file."""
    try:
        return list(read_lines(path, kind))
    except FileNotFoundError as e:
        if not os.path.islink(path):
            return []
        raise ResultsError(
            f"expected a file at {path}, found a link to nothing: remove it and run again"
        ) from e
