"""`rood list`: what there is to choose from."""

import dataclasses
import json
from typing import Annotated

import typer

from rood.cli import app


@app.command("list")
def list_(
    kind: Annotated[
        str, typer.Argument(help="detectors, attacks, objectives, data, models; default all.")
    ] = "all",
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines on stdout.")] = False,
) -> None:
    """List detectors, attacks, objectives, data and models."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from rood.cli.catalogue import KINDS
    from rood.registry import unknown

    if kind not in (*KINDS, "all"):
        raise unknown("kind of thing", kind, KINDS)
    console = Console(highlight=False)
    for name in KINDS if kind == "all" else [kind]:
        entries = [dataclasses.asdict(e) for e in KINDS[name]()]
        if as_json:
            for entry in entries:
                typer.echo(json.dumps({"kind": name} | entry))
            continue
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for entry in entries:
            table.add_row(escape(entry["name"]), _about(entry))
        console.print(f"[bold]{name}[/]", table, "", sep="\n")


def _about(entry: dict[str, str]) -> str:
    """The formula or sentence, and below it what else is known: fits a narrow terminal too."""
    from rich.markup import escape

    kind = entry["gradient"].replace("_", " ")
    facts = [f"gradient {kind}" if kind else "", entry["cost"], entry["paper"]]
    known = " · ".join(f for f in facts if f)
    return escape(entry["about"]) + (f"\n[dim]{escape(known)}[/]" if known else "")
