"""What a person sees in the terminal: progress with time left, and the table at the end."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from rood.evaluation.results import Row


class Progressing(Protocol):
    """What a long piece of work yields."""

    @property
    def label(self) -> str: ...
    @property
    def done(self) -> float: ...
    @property
    def total(self) -> float: ...


S = TypeVar("S", bound=Progressing)
MARKS = {"pass": "green", "warn": "yellow", "fail": "red", "-": "dim"}


def progress(steps: Iterable[S], title: str, *, quiet: bool = False) -> Iterator[S]:
    """Pass the steps on, drawing how far they are; on a terminal only."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield from steps
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        for step in steps:
            bar.update(task, description=step.label, completed=step.done, total=step.total)
            yield step


def table(rows: Sequence[Row]) -> None:
    """Worst AUROC over the OOD sets for each detector: clean, and with the largest budget."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    for model in dict.fromkeys(r.model for r in rows):
        mine = [r for r in rows if r.model == model]
        console.print(_model_table(model, mine))


def _model_table(model: str, rows: Sequence[Row]) -> Table:
    accuracy = next((f", accuracy {r.value:.3f}" for r in rows if r.metric == "accuracy"), "")
    scenarios = [s for s in dict.fromkeys(r.scenario for r in rows) if s != "clean"]
    title = f"{model}{accuracy}: worst AUROC over the OOD sets" + (
        f", attacked by {scenarios[-1]}" if scenarios else ""
    )
    result = Table(title=title, title_justify="left")
    result.add_column("detector")
    sides = [("none", "clean")] + [
        (side, f"{side} attacked")
        for side in ("outside", "inside", "both")
        if any(r.side == side for r in rows)
    ]
    for _, heading in sides:
        result.add_column(heading, justify="right")
    result.add_column("set")
    result.add_column("believe it?")
    for detector in dict.fromkeys(r.detector for r in rows if r.detector):
        result.add_row(detector, *_cells(rows, detector, [s for s, _ in sides], scenarios[-1:]))
    return result


def _cells(
    rows: Sequence[Row], detector: str, sides: Sequence[str], scenario: Sequence[str]
) -> list[str]:
    cells, last = [], None
    for side in sides:
        wanted = "clean" if side == "none" else scenario[0]
        here = [
            r
            for r in rows
            if (r.detector, r.metric, r.side, r.scenario) == (detector, "auroc", side, wanted)
        ]
        last = min(here, key=lambda r: r.value)
        cells.append(f"{last.value:.3f} [{last.low:.2f}, {last.high:.2f}]")
    if last is None:
        return cells
    return [*cells, last.dataset, f"[{MARKS[last.verdict]}]{last.verdict}[/]"]
