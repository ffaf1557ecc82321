"""What an audit leaves behind: a folder of rows, scores and examples, readable without torch.

rows.jsonl              one number a row
scores/…safetensors     `scores` (n,) of one detector on one image set, clean or attacked
examples/…safetensors   `original`, `attacked` (n, c, h, w) and their scores `before`, `after` (n,)
manifest.json           settings, versions, hashes of weights and data, hardware, cost
"""

import csv
import html
import importlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from rood.errors import CapabilityError, ResultsError

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


def rows_from_csv(path: str | Path) -> Iterator[Row]:
    """The rows of a table that `Results.to_csv`, a spreadsheet or another program has written."""
    names = [f.name for f in fields(Row)]
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            table = csv.DictReader(file)
            if sorted(table.fieldnames or ()) != sorted(names):
                got = ", ".join(table.fieldnames or ()) or "nothing"
                raise ResultsError(f"expected columns {', '.join(names)} in {path}, got {got}")
            for line in table:
                yield _row(line, f"line {table.line_num} of {path}")
    except (OSError, UnicodeDecodeError) as e:
        raise ResultsError(f"expected a table of rows as UTF-8 text at {path}, got none") from e


def _row(line: dict[str, Any], where: str) -> Row:
    """Text as the types of the fields."""
    kinds = {f.name: f.type for f in fields(Row)}
    values: dict[str, Any] = {}
    for name, text in line.items():
        try:
            if kinds[name] is float:
                values[name] = float(text)
            elif kinds[name] is int:
                values[name] = int(float(text))  # a spreadsheet writes 3 as 3.0
            elif name in ("low", "high"):
                values[name] = float(text) if text else None
            else:
                values[name] = text or ""
        except (ValueError, TypeError, KeyError) as e:
            raise ResultsError(f"expected a number as {name!r} in {where}, got {text!r}") from e
    return Row(**values)


@dataclass(frozen=True, repr=False)
class Results:
    """The rows of a results folder, to look numbers up in.

    In a notebook it shows a table of every attacked AUROC with its interval and verdict.

    Parameters
    ----------
    folder : Path
        What `rood.audit` or `rood audit --out` wrote. Rows are read when they are used, so a
        folder that an audit is still writing to can be opened too.

    Examples
    --------
    >>> import rood, tempfile, torch
    >>> from rood.attacks import PGD
    >>> from rood.detectors import MSP
    >>> from rood.threat import Linf
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> model = rood.wrap(net, mean=(0.5,), std=(0.3,))
    >>> noise = torch.rand(100, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> results = rood.audit(
    ...     model,
    ...     {"msp": MSP(model)},
    ...     inside=noise[:80],
    ...     outside={"noise": noise[80:]},
    ...     threats=[Linf(0.1)],
    ...     attack=PGD(steps=2),
    ...     out=tempfile.mkdtemp(),
    ... )
    >>> row, = results.find(detector="msp", side="both", metric="auroc")
    >>> row.scenario, row.low <= row.value <= row.high
    ('pgd linf:0.1', True)
    """

    folder: Path

    @property
    def rows(self) -> tuple[Row, ...]:
        """Every row, in the order in which it was written."""
        return tuple(read_rows(self.folder))

    def find(self, **fields: object) -> tuple[Row, ...]:
        """The rows whose fields are as given: find(detector="msp", side="both", metric="auroc")."""
        wanted = fields.items()
        return tuple(r for r in self.rows if all(getattr(r, k) == v for k, v in wanted))

    def __repr__(self) -> str:
        try:
            rows = self.rows
        except OSError:
            return f"Results({str(self.folder)!r}, no rows)"
        models, detectors = ({getattr(r, f) for r in rows} - {""} for f in ("model", "detector"))
        about = [f"{len(rows)} rows", f"models: {', '.join(sorted(models))}"]
        about.append(f"detectors: {', '.join(sorted(detectors))}")
        if attacked := [r for r in _attacked(rows) if math.isfinite(r.value)]:
            worst = min(attacked, key=lambda r: r.value)
            where = f"{worst.detector} on {worst.model}, {worst.dataset}, {worst.scenario}"
            about.append(f"worst attacked AUROC {worst.value:.3f} ({where}, {worst.side})")
        return f"Results({str(self.folder)!r}, {'; '.join(about)})"

    def _repr_html_(self) -> str:
        """Every attacked AUROC with its interval and verdict."""
        try:
            rows = _attacked(self.rows)
        except OSError:
            rows = []
        lines = [
            [
                *(r.model, r.detector, r.dataset, r.scenario, r.side, f"{r.value:.3f}"),
                "" if r.low is None or r.high is None else f"{r.low:.3f} to {r.high:.3f}",
                r.verdict,
            ]
            for r in rows
        ]
        head = [
            "model",
            "detector",
            "dataset",
            "scenario",
            "attacked",
            "AUROC",
            "interval",
            "verdict",
        ]
        cells = lambda tag, texts: "".join(f"<{tag}>{html.escape(t)}</{tag}>" for t in texts)
        body = "".join(f"<tr>{cells('td', line)}</tr>" for line in lines)
        return f"<table><thead><tr>{cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"

    def to_csv(self, path: str | Path) -> None:
        """All rows as a table for spreadsheets; `rows_from_csv` reads it back."""
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, [f.name for f in fields(Row)])
            table.writeheader()
            table.writerows(asdict(r) for r in self.rows)

    def to_pandas(self) -> Any:
        """All rows as a DataFrame. Needs pandas."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as e:
            raise CapabilityError("needs pandas: pip install pandas") from e
        return pandas.DataFrame(
            [asdict(r) for r in self.rows], columns=[f.name for f in fields(Row)]
        )


def _attacked(rows: Iterable[Row]) -> list[Row]:
    return [r for r in rows if r.metric == "auroc" and r.side != "none"]
