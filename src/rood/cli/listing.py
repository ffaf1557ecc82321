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
    from rich.table import Table

    from rood.catalogue import KINDS
    from rood.registry import unknown

    if kind not in (*KINDS, "all"):
        raise unknown("kind of thing", kind, KINDS)
    console = Console()
    for name in KINDS if kind == "all" else [kind]:
        entries = [dataclasses.asdict(e) for e in KINDS[name]()]
        if as_json:
            for entry in entries:
                typer.echo(json.dumps({"kind": name} | entry))
            continue
        columns = [
            c for c in ("name", "about", "gradient", "cost", "paper") if any(e[c] for e in entries)
        ]
        table = Table(title=name, title_justify="left")
        for column in columns:
            table.add_column(column, overflow="fold")
        for entry in entries:
            table.add_row(*(_plain(entry[c]) for c in columns))
        console.print(table)


def _plain(text: str) -> str:
    """Brackets are markup to rich."""
    return text.replace("[", r"\[")
