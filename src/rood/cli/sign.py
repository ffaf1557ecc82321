"""`rood sign`: sign a receipt."""

from pathlib import Path
from typing import Annotated

import typer

from rood.cli import app


@app.command()
def sign(
    folder: Annotated[Path, typer.Argument(help="A receipt, as rood audit --receipt wrote it.")],
    key: Annotated[
        Path, typer.Option(help="Private key of an elliptic curve, PEM without a password.")
    ],
) -> None:
    """Sign a receipt, so that rood verify --key can tell whose it is.

    Writes DIR/signature.json. Nothing leaves the machine. Needs rood[signing].
    """
    from rood.receipts.receipt import SIGNATURE, Receipt
    from rood.receipts.signing import sign as sign_receipt

    sign_receipt(Receipt(folder), key)
    typer.echo(f"signed: {folder / SIGNATURE}")
