"""`rood report`: the page of a results folder."""

from pathlib import Path
from typing import Annotated

import typer

from rood.cli import app


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder that `rood audit` wrote.")] = Path(
        "audit"
    ),
) -> None:
    """Write report.html, one file that opens offline, from a results folder."""
    from rood.report import write_report

    typer.echo(write_report(folder))
