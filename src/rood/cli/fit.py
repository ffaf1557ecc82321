"""`rood fit`: a network, a fitted detector and a calibrated threshold in one folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rood.cli import app
from rood.cli.options import Mean, Std, Weights

if TYPE_CHECKING:
    from rood.guard.fit import Fitted


@app.command()
def fit(
    model: Annotated[
        str, typer.Option(help="Zoo name, checkpoint, ...: as in audit.")
    ] = "digits-aloe",
    weights: Weights = None,
    mean: Mean = None,
    std: Std = None,
    detector: Annotated[str, typer.Option(help="See rood list detectors.")] = "msp",
    inside: Annotated[
        str, typer.Option(help="In-distribution images; a part of them sets the threshold.")
    ] = "digits:inside",
    train: Annotated[
        str | None, typer.Option(help="Labelled images that fit the detector.")
    ] = None,
    rate: Annotated[
        float, typer.Option(help="False alarms to allow: the share of inside that is rejected.")
    ] = 0.05,
    out: Annotated[Path, typer.Option(help="Folder for the guard.")] = Path("guard"),
    onnx: Annotated[
        Path | None, typer.Option(help="Write the whole graph here too, for onnxruntime.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "auto",
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out unreadable images and count them.")
    ] = False,
) -> None:
    """Fit a guard: it accepts or rejects images, with a known rate of false alarms.

    Without arguments: a network and images that ship with rood.
    """
    from rood.cli.lists import numbers
    from rood.cli.show import waiting
    from rood.evaluation.settings import AuditSettings
    from rood.guard.export import check_name
    from rood.guard.fit import fit as fit_guard
    from rood.report.words import shown

    settings = AuditSettings(
        models=(model,),
        weights=weights,
        mean=numbers("--mean", mean) or (),
        std=numbers("--std", std) or (),
        detectors=(detector,),
        inside=inside,
        train=train,
        device=device,
        skip_bad=skip_bad,
    )
    if onnx is not None:
        check_name(onnx)  # before what takes long
    with waiting("loading images, fitting and calibrating"):
        made = fit_guard(settings, rate)
        digest = made.guard.save(out)
    if onnx is not None:
        with waiting("exporting"):
            made.guard.export(onnx)
    _tell(made)
    typer.echo(f"guard: {out} (sha256 {digest})")
    if onnx is not None:
        typer.echo(f"graph: {onnx}")
    for note in made.notes:
        typer.echo(f"note: {shown(note, 1000)}", err=True)


def _tell(made: "Fitted") -> None:
    share, low, high = (100 * v for v in made.test)
    typer.echo(f"threshold {made.guard.threshold:.6g}: {made.guard.calibration.told()}")
    typer.echo(
        f"on {made.n_test} test images: {share:.1f} % rejected ({low:.1f} to {high:.1f}); "
        f"of noise: {100 * made.noise.value:.1f} %"
    )
