"""`rood attack`: attacked images in a folder, with their scores before and after."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rood.cli import app


@app.command()
def attack(
    model: Annotated[
        str, typer.Option(help="Zoo name, checkpoint, ...: as in audit.")
    ] = "digits-ce",
    detector: Annotated[str, typer.Option(help="The detector to attack.")] = "msp",
    images: Annotated[
        str | None,
        typer.Option(
            help="Images to attack: folder:DIR, npz:FILE, ... Default: digits:near to look in, "
            "the test part of --inside to look out.",
        ),
    ] = None,
    direction: Annotated[
        str, typer.Option(help="look_in (to be missed) or look_out (to raise a false alarm).")
    ] = "look_in",
    eps: Annotated[str, typer.Option(help="The budget: 8/255, linf:0.1, l2:0.5.")] = "8/255",
    attack: Annotated[
        str, typer.Option(help="worst_of, apgd, pgd, ...; see rood list attacks.")
    ] = "worst_of",
    tier: Annotated[
        str | None, typer.Option(help="Of worst_of: quick, standard (default) or full.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of the attack.")] = None,
    restarts: Annotated[int | None, typer.Option(help="Restarts of the attack.")] = None,
    inside: Annotated[
        str, typer.Option(help="In-distribution images; a part of them sets the threshold.")
    ] = "digits:inside",
    train: Annotated[
        str | None, typer.Option(help="Labelled images that fit the detector.")
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", help="png (8 bits, still within eps) or npz (float).")
    ] = "png",
    out: Annotated[
        Path, typer.Option(help="Folder for images and scores; continued if it exists.")
    ] = Path("attack"),
    limit: Annotated[int, typer.Option(help="Images to attack; 0 for all.")] = 100,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "auto",
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
    batch_size: Annotated[int, typer.Option(help="Images at once: speed, not scores.")] = 64,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out unreadable images and count them.")
    ] = False,
) -> None:
    """Craft attacked images and save them, with their scores before and after.

    Without arguments: a network and images that ship with rood.
    """
    from rood.cli.show import progress, waiting
    from rood.evaluation.crafting import prepare
    from rood.evaluation.scores_table import ScoresTable
    from rood.evaluation.settings import AuditSettings
    from rood.report.words import shown

    own = inside if direction == "look_out" else "digits:near"
    options = {"tier": tier, "steps": steps, "restarts": restarts}
    settings = AuditSettings(
        models=(model,),
        detectors=(detector,),
        outside={"images": own if images is None else images},
        threats=(eps,),
        attack=attack,
        attack_options={k: v for k, v in options.items() if v is not None},
        inside=inside,
        train=train,
        limit=limit or None,
        device=device,
        seed=seed,
        batch_size=batch_size,
        skip_bad=skip_bad,
    )
    with waiting("loading images and fitting the detector"):
        work = prepare(settings, direction, format_)
    for _ in progress(work.run(out), "attacking"):
        pass
    _show(ScoresTable(out / "scores.csv").summary(), f"{detector}, {direction}, {work.threat}")
    typer.echo(f"images: {out / ('images' if format_ == 'png' else 'attacked.npz')}")
    typer.echo(f"scores: {out / 'scores.csv'}")
    for note in work.images.notes:
        typer.echo(f"note: {shown(work.images.name)}: {shown(note, 1000)}", err=True)


def _show(summary: Any, title: str) -> None:
    """Shares with their 95 % intervals; the threshold keeps 95 % of in-distribution images."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    result = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in ("images", "accepted before", "accepted after", "median score shift"):
        result.add_column(column, justify="right", no_wrap=True)
    shares = (_percent(s) for s in (summary.accepted_before, summary.accepted_after))
    result.add_row(str(summary.n), *shares, f"{summary.shift:+.4g}")
    console = Console(highlight=False)
    console.print(f"[bold]{escape(title)}[/]: accepted at the threshold that keeps 95 % of inside")
    console.print(result)


def _percent(share: Any) -> str:
    value, low, high = (100 * v for v in share)
    return f"{value:.1f} % ({low:.0f} to {high:.0f})"
