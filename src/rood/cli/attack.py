"""`rood attack`: attacked images in a folder, with their scores before and after."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rood.cli import app, options
from rood.cli.options import numbers

if TYPE_CHECKING:
    from rood.evaluation.crafting import Summary
    from rood.metrics import Interval


@app.command()
def attack(
    model: Annotated[str, options.MODEL] = "digits-ce",
    weights: Annotated[str | None, options.WEIGHTS] = None,
    mean: Annotated[str | None, options.MEAN] = None,
    std: Annotated[str | None, options.STD] = None,
    size: Annotated[str | None, options.SIZE] = None,
    detector: Annotated[str, options.DETECTOR] = "msp",
    images: Annotated[
        str | None,
        typer.Option(
            help="Images to attack: folder:DIR, npz:FILE, ... Default: digits:near for look_in, "
            "the test part of --inside for look_out.",
        ),
    ] = None,
    direction: Annotated[
        str, typer.Option(help="look_in (to be accepted) or look_out (to be rejected).")
    ] = "look_in",
    eps: Annotated[
        str, typer.Option(help="The budget: 8/255, l2:0.5, l1:4, l0:20, patch:8.")
    ] = "8/255",
    attack: Annotated[str, options.ATTACK] = "worst_of",
    tier: Annotated[str | None, options.TIER] = None,
    steps: Annotated[int | None, options.STEPS] = None,
    restarts: Annotated[int | None, options.RESTARTS] = None,
    inside: Annotated[str, options.INSIDE] = "",
    train: Annotated[str | None, options.TRAIN] = None,
    format_: Annotated[
        str, typer.Option("--format", help="png (8 bits, still within eps) or npz (float).")
    ] = "png",
    out: Annotated[
        Path, typer.Option(help="Folder for images and scores; an interrupted run continues.")
    ] = Path("attack"),
    limit: Annotated[int, typer.Option(help="Images to attack; 0 for all.")] = 100,
    device: Annotated[str, options.DEVICE] = "auto",
    seed: Annotated[int, options.SEED] = 0,
    batch_size: Annotated[int, options.BATCH_SIZE] = 64,
    skip_bad: Annotated[bool, options.SKIP_BAD] = False,
    trust: Annotated[bool, options.TRUST] = False,
    quiet: Annotated[bool, options.QUIET] = False,
) -> None:
    """Craft attacked images and save them, with their scores before and after.

    Without arguments: a network and images that ship with rood.
    """
    from rood import api
    from rood.cli.show import note, waiting
    from rood.evaluation.settings import AuditSettings, refuse_demo_images
    from rood.progress import drawn

    tuned = {"tier": tier, "steps": steps, "restarts": restarts}
    settings = AuditSettings(
        models=(model,),
        weights=weights,
        mean=numbers("--mean", mean) or (),
        std=numbers("--std", std) or (),
        size=size,
        detectors=(detector,),
        threats=(eps,),
        attack=attack,
        attack_options={k: v for k, v in tuned.items() if v is not None},
        inside=inside,
        train=train,
        limit=limit or None,
        device=device,
        seed=seed,
        batch_size=batch_size,
        skip_bad=skip_bad,
        trust=trust,
    )
    if images is None and direction != "look_out":
        refuse_demo_images(settings.models, "--images")
        images = "digits:near"
    with waiting("loading images and fitting the detector", quiet=quiet):
        crafting = api.plan_crafting(settings, images, direction, format_)
    summary = api.attack(crafting, out, lambda steps: drawn(steps, "attacking", quiet=quiet))
    _show(summary, f"{detector}, {direction}, {crafting.threat}")
    typer.echo(f"images: {out / ('images' if format_ == 'png' else 'attacked.npz')}")
    typer.echo(f"scores: {out / 'scores.csv'}")
    for text in crafting.images.notes:
        note(text, "note", crafting.images.name)


def _show(summary: "Summary", title: str) -> None:
    """Shares with their 95 % intervals; the threshold keeps 95 % of ID images."""
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


def _percent(share: "Interval") -> str:
    value, low, high = (100 * v for v in share)
    return f"{value:.1f} % ({low:.0f} to {high:.0f})"
