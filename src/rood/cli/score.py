"""`rood score`: a folder of images through a guard."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rood.cli import app, options

if TYPE_CHECKING:
    from rood.guard.scoring import FolderScores
    from rood.models.model import Model


@app.command()
def score(
    guard: Annotated[Path, typer.Argument(help="A folder that `rood fit` wrote.")],
    folder: Annotated[Path, typer.Argument(help="Images, of any size; sub-folders too.")],
    model: Annotated[
        str | None,
        typer.Option(help="The network, if the guard holds only its hash; as in rood audit."),
    ] = None,
    weights: Annotated[str | None, options.WEIGHTS] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write the rows to this file; default: stdout.")
    ] = None,
    drift: Annotated[
        Path | None,
        typer.Option(help="CSV file to append to: the rejected share per window of images."),
    ] = None,
    window: Annotated[int, typer.Option(help="Images per window of --drift.")] = 200,
    device: Annotated[str, options.DEVICE] = "auto",
    batch_size: Annotated[int, options.BATCH_SIZE] = 64,
    skip_bad: Annotated[bool, options.SKIP_BAD] = False,
    trust: Annotated[bool, options.TRUST] = False,
    quiet: Annotated[bool, options.QUIET] = False,
) -> None:
    """Label, score, and accept or reject every image of a folder."""
    from rood.device import pick_device
    from rood.errors import InputError
    from rood.evaluation.store import readable_errors
    from rood.guard.drift import DriftLog
    from rood.guard.guard import Guard
    from rood.guard.scoring import FolderScores
    from rood.progress import drawn

    network = named(guard, model, weights, trust)
    loaded = Guard.load(guard, model=network).to(pick_device(device))
    root = Path(str(folder).removeprefix("folder:"))  # as every other command writes it
    scores = FolderScores(loaded, root, batch_size, skip_bad)
    log = DriftLog(drift, loaded.calibration, window) if drift else None
    with ExitStack() as stack:
        table = sys.stdout
        if csv is None and table is None:
            raise InputError("expected --csv FILE, since stdout is closed, got none")
        if csv is not None:
            stack.enter_context(readable_errors(csv))
            table = stack.enter_context(csv.open("w", encoding="utf-8", newline=""))
        for _ in drawn(scores.run(table, log), "scoring", quiet=quiet):
            pass
    _tell(scores, to_stderr=csv is None)
    if csv is not None:
        typer.echo(f"rows: {csv}")


def named(guard: Path, model: str | None, weights: str | None, trust: bool) -> "Model | None":
    """The network that --model names for a guard; None where it names none."""
    from rood.errors import InputError
    from rood.guard.disk import named_network

    if model is not None:
        return named_network(guard, model, weights, trust=trust)
    if weights is not None:
        raise InputError(f"expected --model beside --weights {weights}, got none")
    return None


def _tell(scores: "FolderScores", *, to_stderr: bool) -> None:
    from rood.cli.show import note
    from rood.report.words import shown

    share, low, high = (100 * v for v in scores.share())
    expected = 100 * scores.guard.calibration.bound
    typer.echo(
        f"{scores.rejected} of {scores.scored} images rejected: {share:.1f} % "
        f"({low:.1f} to {high:.1f}); {expected:.1f} % is expected of in-distribution images",
        err=to_stderr,
    )
    if scores.resized:
        h, w = scores.guard.shape[1:]
        note(f"{scores.resized} images were resized to {h}x{w}")
    if scores.skipped:
        named = ", ".join(repr(shown(name)) for name in scores.skipped[:20])
        more = f" and {len(scores.skipped) - 20} more" if len(scores.skipped) > 20 else ""
        n = len(scores.skipped)
        note(f"{n} could not be read and were skipped: {named}{more}")
