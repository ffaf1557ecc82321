"""`rood reproduce`: the papers' tables and figures, the printed number beside ours."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rood_papers.framework.cells import Cell
    from rood_papers.framework.experiment import Experiment


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Experiments (aloe/table1) or papers (aloe); none lists all."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Run every experiment.")] = False,
    size: Annotated[str, typer.Option(help="Images and steps: tiny, small or paper.")] = "tiny",
    out: Annotated[
        Path, typer.Option(help="Folder for rows and page; an interrupted run continues.")
    ] = Path("reproduction"),
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "auto",
    model: Annotated[
        list[str] | None,
        typer.Option(help="ROLE=SOURCE: the network for a role, such as net=hf:NAME."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="NAME=SOURCE: the images of a set, such as places365=folder:DIR."),
    ] = None,
    only: Annotated[
        str, typer.Option(help="Run only parts whose names contain this text, such as '2/255'.")
    ] = "",
    zoo: Annotated[
        Path | None,
        typer.Option(envvar="ROOD_ZOO", help="Folder of networks, searched before the zoo."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    tf32: Annotated[
        bool,
        typer.Option("--tf32", help="Use TF32 in convolutions on a GPU: much faster."),
    ] = False,
) -> None:
    """Run tables and figures of papers and show our numbers beside the printed ones.

    Without arguments, list the experiments.
    """
    import rood_papers as papers

    if not names and not all_:
        return _list(list(papers.experiments().values()))
    chosen = list(papers.experiments().values()) if all_ else papers.chosen(names or [])
    from rood.device import pick_device
    from rood.errors import InputError
    from rood_papers.framework.context import SIZES, Context
    from rood_papers.framework.run import PartsFailed, run

    if size not in SIZES:
        raise InputError(f"expected size {', '.join(SIZES)}, got {size!r}")
    context = Context(
        SIZES[size],
        device=pick_device(device),
        models=_pairs(model, "--model ROLE=SOURCE"),
        data=_pairs(data, "--data NAME=SOURCE"),
        zoo=zoo,
        out=out,
        seed=seed,
        tf32=tf32,
    )
    try:
        for cell in run(chosen, context, only):
            typer.echo(_line(cell))
    except PartsFailed:
        _write_page(chosen, out)
        raise
    _write_page(chosen, out)


def _write_page(chosen: list["Experiment"], out: Path) -> None:
    from rood.errors import CapabilityError
    from rood_papers.framework.cells import read_rows

    typer.echo(f"rows: {out / 'rows.jsonl'}")
    try:
        from rood_papers.framework.page import About, write_page

        about = {e.name: About(e.what, e.why) for e in chosen}
        page = write_page(read_rows(out / "rows.jsonl"), about, out / "page.html")
    except (CapabilityError, ImportError) as e:  # plotly and jinja2 are optional
        typer.echo(f"no page: {e}", err=True)
    else:
        typer.echo(f"page: {page}")


def _list(experiments: list["Experiment"]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in ("experiment", "what", "needs"):
        table.add_column(column)
    for e in experiments:
        table.add_row(e.name, e.what, e.needs)
    Console(highlight=False).print(table)


def _pairs(texts: list[str] | None, form: str) -> dict[str, str]:
    from rood.errors import InputError

    found = {}
    for text in texts or ():
        name, equals, source = text.partition("=")
        if not (name and equals and source):
            raise InputError(f"expected {form}, got {text!r}")
        found[name] = source
    return found


def _line(cell: "Cell") -> str:
    """One cell on one line."""
    what = f"{cell.experiment}  {cell.row}  {cell.column}  {cell.metric}  {cell.attack}"
    if cell.ours is None:
        return f"{what}  {cell.note}"
    paper = "" if cell.paper is None else f"  paper {cell.paper:.4g}"
    return f"{what}{paper}  ours {cell.ours:.4g}"
