"""`rood diff`: two audits side by side."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rood.cli import app

if TYPE_CHECKING:
    from rood.receipts.difference import Difference

LOWER = 3  # exit code
MOST = 20  # lines of what else changed


@app.command()
def diff(
    before: Annotated[Path, typer.Argument(help="A results folder or receipt.")],
    after: Annotated[Path, typer.Argument(help="Another one, such as of a later commit.")],
    page: Annotated[Path | None, typer.Option(help="Write a page to this HTML file.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as JSON on stdout.")
    ] = False,
) -> None:
    """Say what changed between two audits, with the interval of every difference.

    Exit code 3: an AUROC is lower than before, beyond chance among all that are compared.
    """
    from rood.receipts.difference import difference

    found = difference(before, after)
    if page is not None:
        from rood._files import write_whole
        from rood.evaluation.store import readable_errors
        from rood.receipts.difference_page import render

        with readable_errors(page):
            write_whole(page, render(found).encode())
    if as_json:
        told = asdict(found) | {"changes": [asdict(c) | {"word": c.word} for c in found.changes]}
        typer.echo(json.dumps(told, indent=1))
    else:
        _show(found)
        if page is not None:
            typer.echo(f"page: {page}")
    if found.lower:
        raise typer.Exit(LOWER)


def _show(found: "Difference") -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from rood.report.words import shown

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("detector", "set", "attack", "attacked"):
        table.add_column(name, overflow="fold")
    for name in ("before", "after", "change", "95 % interval", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for c in found.changes:
        d = c.difference
        table.add_row(
            *(escape(shown(t)) for t in (c.detector, c.dataset, c.scenario, c.side)),
            *(f"{v:.3f}" for v in (c.before, c.after)),
            f"{d.value:+.3f}",
            f"{d.low:+.3f} to {d.high:+.3f}",
            {"lower": "[red]lower[/]", "higher": "[green]higher[/]", "same": ""}[c.word],
        )
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 110
    console.print(table)
    for line in [*found.facts, *found.alone][:MOST]:
        typer.echo(f"changed: {shown(line, 300)}")
    if (more := len(found.facts) + len(found.alone) - MOST) > 0:
        typer.echo(f"changed: {more} more, see --json")
    if not all(c.paired for c in found.changes):
        typer.echo("note: the images are others, so intervals are wider than of the same images")
    lower, higher = len(found.lower), sum(c.sure > 0 for c in found.changes)
    typer.echo(f"{len(found.changes)} AUROCs: {lower} lower, {higher} higher, beyond chance")
