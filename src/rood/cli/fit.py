"""`rood fit`: a network, a fitted detector and a calibrated threshold in one folder."""

from pathlib import Path
from typing import Annotated

import typer

from rood.cli import app, options
from rood.cli.options import numbers


@app.command()
def fit(
    model: Annotated[str, options.MODEL] = "digits-aloe",
    weights: Annotated[str | None, options.WEIGHTS] = None,
    mean: Annotated[str | None, options.MEAN] = None,
    std: Annotated[str | None, options.STD] = None,
    size: Annotated[str | None, options.SIZE] = None,
    detector: Annotated[str, options.DETECTOR] = "msp",
    inside: Annotated[str, options.INSIDE] = "",
    train: Annotated[str | None, options.TRAIN] = None,
    rate: Annotated[
        float, typer.Option(help="False-alarm rate: the share of ID images to reject.")
    ] = 0.05,
    out: Annotated[Path, typer.Option(help="Folder for the guard.")] = Path("guard"),
    onnx: Annotated[
        Path | None, typer.Option(help="Also export the guard to this .onnx file.")
    ] = None,
    device: Annotated[str, options.DEVICE] = "auto",
    skip_bad: Annotated[bool, options.SKIP_BAD] = False,
    trust: Annotated[bool, options.TRUST] = False,
) -> None:
    """Fit a guard: it accepts or rejects images, with a known rate of false alarms.

    Without arguments: a network and images that ship with rood.
    """
    from rood import api
    from rood.cli.show import note, waiting
    from rood.evaluation.settings import AuditSettings

    settings = AuditSettings(
        models=(model,),
        weights=weights,
        mean=numbers("--mean", mean) or (),
        std=numbers("--std", std) or (),
        size=size,
        detectors=(detector,),
        inside=inside,
        train=train,
        device=device,
        skip_bad=skip_bad,
        trust=trust,
    )
    with waiting("loading images, fitting and calibrating"):
        made, digest = api.fit(settings, out, rate, onnx)
    share, low, high = (100 * v for v in made.test)
    typer.echo(f"threshold {made.guard.threshold:.6g}: {made.guard.calibration.told()}")
    typer.echo(
        f"on {made.n_test} test images: {share:.1f} % rejected ({low:.1f} to {high:.1f}); "
        f"of noise: {100 * made.noise.value:.1f} %"
    )
    typer.echo(f"guard: {out} (sha256 {digest})")
    if onnx is not None:
        typer.echo(f"graph: {onnx}")
    for text in made.notes:
        note(text)
