"""`rood train`: train a network of the zoo again, or one on your own images."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rood.cli import app

if TYPE_CHECKING:
    from rood.training.loop import Epoch


@app.command()
def train(
    name: Annotated[str, typer.Option(help="A recipe: the name of a network of the zoo.")],
    out: Annotated[Path, typer.Option(help="The weights file; a card in JSON goes beside it.")],
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "auto",
) -> None:
    """Train a network; a run that was stopped goes on with the same command."""
    from rood.cli.show import progress
    from rood.evaluation.settings import pick_device
    from rood.training.recipes import run_recipe

    epochs = run_recipe(name, out, device=pick_device(device))
    for step in progress(map(_Trained, epochs), f"training {name}"):
        typer.echo(step.label)
    typer.echo(f"weights: {out}")


@dataclass(frozen=True)
class _Trained:
    """An epoch as a step of progress."""

    epoch: "Epoch"

    @property
    def label(self) -> str:
        e = self.epoch
        accuracy = "" if e.accuracy is None else f", accuracy {e.accuracy:.3f}"
        return f"epoch {e.epoch} of {e.epochs}: loss {e.loss:.4f}{accuracy}, {e.seconds:.1f} s"

    @property
    def done(self) -> float:
        return self.epoch.epoch

    @property
    def total(self) -> float:
        return self.epoch.epochs
