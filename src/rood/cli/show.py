"""What a person sees in the terminal: notes, and the table at the end."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rood.evaluation.rows import CERTIFIED, CLEAN, Row
from rood.report.words import shown

BELIEVED = {"pass": "[green]yes[/]", "warn": "[yellow]with care[/]", "fail": "[red]no[/]", "-": "-"}
SIDES = {
    "none": ("clean", "nothing attacked"),
    "outside": ("outside", "OOD images made to look ID"),
    "inside": ("inside", "ID images made to look OOD"),
    "both": ("both", "both at once"),
}
AUROC = f"{CERTIFIED}auroc"
PROVED = ("certified", "no attack gets below, both at once")
PLAIN = 100  # columns where there is no terminal
WIDE = 92  # columns from which the interval fits too
MEDIUM = 76  # columns from which the name of the set fits


@contextmanager
def waiting(text: str, *, quiet: bool = False) -> Iterator[None]:
    """Show a spinner with `text` on a terminal, for work of unknown length."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    with console.status(text):
        yield


def note(text: object, kind: str = "note", about: object = None) -> None:
    """One line on stderr; whatever a file may be called, it stays one line."""
    subject = "" if about is None else f"{shown(about)}: "
    typer.echo(f"{kind}: {subject}{shown(text, 1000)}", err=True)


def table(rows: Sequence[Row], width: int | None = None) -> None:
    """Worst AUROC over the OOD sets for each detector: clean, and with the largest budget."""
    console = Console(highlight=False, width=width)
    if not console.is_terminal:
        console.width = width or PLAIN
    for model in dict.fromkeys(r.model for r in rows):
        mine = [r for r in rows if r.model == model]
        console.print(_title(mine))
        console.print(_model_table(mine, console.width))
    console.print(_legend(rows, console.width), style="dim")


def _title(rows: Sequence[Row]) -> str:
    scenario, proof = _largest(rows), _largest(rows, certified=True)
    title = f"[bold]{_name(rows[0].model)}[/]: AUROC on the hardest OOD set"
    title += f", attacked by {_name(scenario)}" if scenario else ", nothing attacked"
    title += f", certified by {_name(proof)}" if proof else ""
    known = next((r for r in rows if r.metric == "accuracy"), None)
    if known is not None:
        few = ", a small sample" if known.small else ""
        title += f"; accuracy {known.value:.3f} of {known.n_in} images{few}"
    if any(r.small for r in rows if r.metric == "auroc"):
        title += f"\nsmall sample: {_sizes(rows)} images per set, read the intervals"
    return title


def _sizes(rows: Sequence[Row]) -> str:
    sizes = {n for r in rows if r.metric == "auroc" for n in (r.n_in, r.n_out)}
    return f"{min(sizes)}" if len(sizes) == 1 else f"{min(sizes)} to {max(sizes)}"


def _model_table(rows: Sequence[Row], width: int) -> Table:
    scenario = _largest(rows)
    result = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    result.add_column("detector", overflow="fold")
    for side in _sides(rows):
        result.add_column(SIDES[side][0], justify="right", no_wrap=True)
    if proof := _largest(rows, certified=True):
        result.add_column(PROVED[0], justify="right", no_wrap=True)
    if width >= WIDE:
        result.add_column("95 % interval", no_wrap=True)
    if width >= MEDIUM:
        result.add_column("set", overflow="ellipsis", max_width=14, no_wrap=True)
    if scenario:
        result.add_column("believe it?", min_width=9)
    for detector in dict.fromkeys(r.detector for r in rows if r.detector):
        mine = [r for r in rows if r.detector == detector and r.metric == "auroc"]
        lows = [r for r in rows if (r.detector, r.scenario, r.metric) == (detector, proof, AUROC)]
        proved = [min(lows, key=lambda r: r.value, default=None)] if proof else []
        result.add_row(_name(detector), *_cells(mine, _sides(rows), scenario, proved, width))
    return result


def _cells(
    aurocs: Sequence[Row],
    sides: Sequence[str],
    scenario: str,
    proved: Sequence[Row | None],
    width: int,
) -> list[str]:
    known = [r for r in aurocs if r.scenario in ("clean", scenario)]
    of_side = [[r for r in known if r.side == side] for side in sides]
    worst = [min(some, key=lambda r: r.value, default=None) for some in of_side]
    cells = ["-" if r is None else f"{r.value:.3f}" for r in [*worst, *proved]]
    last = worst[-1] if scenario or not proved else proved[-1]
    if width >= WIDE:
        cells.append("-" if last is None else f"{last.low:.3f} to {last.high:.3f}")
    if width >= MEDIUM:
        cells.append("-" if last is None else _name(last.dataset))
    if not scenario:
        return cells
    return [*cells, "not attacked" if last is None else BELIEVED[last.verdict]]


def _legend(rows: Sequence[Row], width: int) -> Table:
    """What the columns mean, in words."""
    sides, proof = _sides(rows), _largest(rows, certified=True)
    last = SIDES[sides[-1]][0] if len(sides) > 1 or not proof else PROVED[0]
    said = [("AUROC", "1: ID and OOD separated without error; 0.5: a coin toss")]
    said += [*(SIDES[side] for side in sides), *([PROVED] if proof else [])]
    if width >= MEDIUM:
        what = "interval and set" if width >= WIDE else "set"
        said.append((what, f"of the column {last!r}"))
    if len(sides) > 1:
        said.append(("believe it?", "did the attack pass its own checks; the report says why"))
    legend = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for line in said:
        legend.add_row(*line)
    return legend


def _largest(rows: Sequence[Row], *, certified: bool = False) -> str:
    """The last scenario, which has the largest budget; "" where nothing was attacked or proved."""
    some = [r for r in rows if r.scenario != CLEAN and r.metric.startswith(CERTIFIED) == certified]
    return some[-1].scenario if some else ""


def _sides(rows: Sequence[Row]) -> list[str]:
    there = {r.side for r in rows if r.metric == "auroc"}
    return [side for side in SIDES if side in there]


def _name(text: str) -> str:
    """Brackets are markup to rich, and a name may hold anything."""
    return escape(shown(text, 60))
