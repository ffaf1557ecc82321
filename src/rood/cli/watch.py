"""`rood watch`: a stream of images, with an alarm when it leaves the calibration images."""

import json as json_module
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rood.cli import app, options

if TYPE_CHECKING:
    from rood.guard.watching import Watch


@app.command()
def watch(
    guard: Annotated[Path, typer.Argument(help="A folder that `rood fit` wrote.")],
    source: Annotated[
        str, typer.Argument(help="A folder of images, or - for file names on stdin, one a line.")
    ],
    arl: Annotated[
        float, typer.Option(help="Images until a false alarm, on average, at least.")
    ] = 10_000,
    page: Annotated[
        Path | None, typer.Option(help="Write a page with the evidence over the stream.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per image.")] = False,
    model: Annotated[
        str | None,
        typer.Option(help="The network, if the guard holds only its hash; as in rood audit."),
    ] = None,
    weights: Annotated[str | None, options.WEIGHTS] = None,
    device: Annotated[str, options.DEVICE] = "auto",
    seed: Annotated[int, options.SEED] = 0,
    skip_bad: Annotated[bool, options.SKIP_BAD] = False,
    trust: Annotated[bool, options.TRUST] = False,
) -> None:
    """Raise an alarm when a stream of images is no longer what the guard was calibrated on."""
    from rood.cli.score import named
    from rood.device import pick_device
    from rood.guard.guard import Guard
    from rood.guard.monitor import Monitor
    from rood.guard.watching import Watch, files_of
    from rood.report.stream import Stream

    loaded = Guard.load(guard, model=named(guard, model, weights, trust))
    watched = Watch(Monitor(loaded.to(pick_device(device)), arl=arl, seed=seed), skip_bad)
    stream = Stream(arl)
    for reading in watched.run(files_of(source, sys.stdin)):
        stream.add(reading)
        if json:
            typer.echo(json_module.dumps(reading))
        elif reading["alarm"]:
            typer.echo(
                f"alarm at image {reading['number']}, {reading['file']!r}: evidence "
                f"{reading['evidence']:.3g} >= {arl:g}"
            )
    _tell(watched, to_stderr=json)
    if page is not None:
        stream.write(page)
        typer.echo(f"page: {page}", err=json)


def _tell(watched: "Watch", *, to_stderr: bool) -> None:
    monitor = watched.monitor
    n, alarms = monitor.seen, len(monitor.alarms)
    bound = min(1.0, n / monitor.arl)
    typer.echo(
        f"{alarms} alarm{'s' * (alarms != 1)} in {n} images, {watched.rejected} rejected; "
        f"in-distribution images raise one with probability {bound:.2g} at most",
        err=to_stderr,
    )
    if watched.skipped:
        typer.echo(f"{len(watched.skipped)} files could not be read and were skipped", err=True)
