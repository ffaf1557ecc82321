"""`rood break`: attacked images that lower a number of a receipt."""

from pathlib import Path
from typing import Annotated

import typer

from rood.cli import app, options
from rood.cli.verify import DATA, MODEL, given_by


@app.command("break")
def break_(
    folder: Annotated[Path, typer.Argument(help="A receipt, as rood audit --receipt wrote it.")],
    images: Annotated[
        str,
        typer.Option(help="Attacked images of one set, in its order: folder:DIR, npz:FILE, ..."),
    ],
    by: Annotated[str, typer.Option(help="Your name, which is shown beside the number.")],
    on: Annotated[
        str | None, typer.Option(help="The set they are of; default: the only OOD set.")
    ] = None,
    detector: Annotated[
        str | None, typer.Option(help="One detector; default: every one they may lower.")
    ] = None,
    model: Annotated[list[str] | None, MODEL] = None,
    weights: Annotated[str | None, options.WEIGHTS] = None,
    data: Annotated[list[str] | None, DATA] = None,
    device: Annotated[str, options.DEVICE] = "auto",
    batch_size: Annotated[int | None, options.BATCH_SIZE] = None,
    trust: Annotated[bool, options.TRUST] = False,
) -> None:
    """Lower a number of a receipt with attacked images of your own.

    Each image is checked against norm and budget and scored; of each image the strongest attack
    counts. What lowers a number is written to DIR/breaks with your name. Exit code 3: nothing did.
    """
    from rood.cli.show import note
    from rood.data.given import image_set
    from rood.receipts.breaking import try_images
    from rood.receipts.receipt import Receipt
    from rood.receipts.rescoring import Witness
    from rood.report.words import shown

    receipt = Receipt(folder)
    witness = Witness(receipt, given_by(model, weights, data, device, batch_size, trust))
    tried = image_set(images, "images", shape=None)
    lowered = 0
    for m, made, sentence in try_images(witness, tried, by, on=on, detector=detector):
        if made is None:
            note(f"{m.where()}: {sentence}", "kept")
        else:
            lowered += 1
            typer.echo(f"broken: {shown(m.where())}: {shown(sentence)}")
    if not lowered:
        typer.echo("no number is lower")
        raise typer.Exit(3)
    typer.echo(f"{lowered} lower: {folder / 'breaks'}; rood verify --tier rescore checks them")
