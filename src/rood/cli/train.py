"""`rood train`: train a network of the zoo again, or one on your own images."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rood.cli import app, options

if TYPE_CHECKING:
    from rood.evaluation.steps import Step
    from rood.training.loop import Epoch
    from rood.training.recipe import Recipe

WEIGHTS = ".safetensors"


@app.command()
def train(
    out: Annotated[
        Path, typer.Option(help="Folder for net.safetensors and its card; or a .safetensors file.")
    ],
    config: Annotated[Path | None, options.CONFIG] = None,
    name: Annotated[
        str | None, typer.Option(help="A network of the zoo, trained again by its recipe.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Labelled images: folder:DIR with one folder per class, ...")
    ] = None,
    held_out: Annotated[
        str | None, typer.Option(help="Labelled images to test on; default: a part of --data.")
    ] = None,
    outliers: Annotated[
        str | None, typer.Option(help="Outlier images to train against: SPEC[,SPEC...].")
    ] = None,
    unseen: Annotated[
        list[str] | None,
        typer.Option(help="OOD images of later tests, kept out of --outliers; may be repeated."),
    ] = None,
    objective: Annotated[
        str | None, typer.Option(help="The training objective; see rood list objectives.")
    ] = None,
    eps: Annotated[str | None, typer.Option(help="Budget of the inner attack: 8/255.")] = None,
    backbone: Annotated[str | None, typer.Option(help="The architecture: small_cnn, ...")] = None,
    size: Annotated[int | None, typer.Option(help="Resize images to this many pixels.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the images.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step.")] = None,
    lr: Annotated[float | None, typer.Option(help="Peak learning rate.")] = None,
    seed: Annotated[int | None, options.SEED] = None,
    skip_bad: Annotated[bool | None, options.SKIP_BAD] = None,
    device: Annotated[str, options.DEVICE] = "auto",
) -> None:
    """Train a network, plain or hardened; the same command continues an interrupted run.

    The demo's network, hardened in minutes: rood train --name digits-aloe --out runs/mine
    """
    given: dict[str, Any] = {
        "data": data,
        "held_out": held_out,
        "outliers": outliers,
        "unseen": unseen or None,
        "objective": objective,
        "eps": eps,
        "backbone": backbone,
        "size": size,
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": lr,
        "seed": seed,
        "skip_bad": skip_bad or None,
    }
    from rood.training.recipe import command

    given = {key: value for key, value in given.items() if value is not None}
    recipe = _recipe(config, name, given)
    weights = out if out.suffix == WEIGHTS else out / f"net{WEIGHTS}"
    again = command(name) if name else _command(config, given, out)
    _run(recipe, name, weights, again, device)


def _run(recipe: "Recipe", name: str | None, weights: Path, command: str, device: str) -> None:
    from rood.cli.show import waiting
    from rood.device import pick_device
    from rood.models import checkpoint
    from rood.progress import drawn
    from rood.training.job import run
    from rood.training.parallel import first

    where = pick_device(device)
    with waiting("loading images"):
        epochs = run(recipe, weights, command, device=where)
    for step in drawn(map(_step, epochs), "training", lines=False):
        if first():
            typer.echo(step.label)
    if not first():
        return
    facts = checkpoint.read_card(weights)["training"]
    for part in ("data", "outliers"):
        for note in (facts[part] or {}).get("notes", ()):
            typer.echo(f"note: {part}: {note}", err=True)
    tested = facts["tested_on"]["images"]
    typer.echo(f"accuracy {facts['accuracy']:.3f} on {tested} images, {facts['seconds']} s")
    typer.echo(f"weights: {weights}")
    typer.echo(f"attack it: {_audit(recipe, name, weights)}")


def _recipe(config: Path | None, name: str | None, given: dict[str, Any]) -> "Recipe":
    from rood import config as files
    from rood.errors import InputError
    from rood.training.recipe import changed, get, read

    if name is not None:
        if config or given:
            first = str(config) if config else f"--{next(iter(given))}".replace("_", "-")
            raise InputError(f"expected --name alone, as the recipe says the rest, got {first} too")
        return get(name)
    if config is None and "data" not in given:
        raise InputError(
            "expected images to train on, got none: name them with --data folder:DIR, or a network "
            "of the zoo with --name"
        )
    base = files.read(config) if config else {}
    return read(changed(base, given), config.name if config else "options")


def _command(config: Path | None, given: dict[str, Any], out: Path) -> str:
    """What does the same again."""
    said = ["rood", "train", *([str(config)] if config else [])]
    for key, value in given.items():
        option = f"--{key.replace('_', '-')}"
        for v in value if isinstance(value, list) else [value]:
            said += [option] if v is True else [option, str(v)]
    return shlex.join([*said, "--out", str(out)])


def _audit(recipe: "Recipe", name: str | None, weights: Path) -> str:
    """The command that attacks the network, beside the zoo's plain one where there is one."""
    from rood.models import zoo
    from rood.threat import Linf

    plain = f"{name.partition('-')[0]}-ce" if name else ""
    said = ["--model", plain] if plain in zoo.names() and plain != name else []
    said += ["--model", str(weights)]
    if not recipe.data.startswith("digits:"):  # which the audit takes by itself
        said += ["--inside", recipe.held_out or recipe.data]
        said += ["--train", recipe.data] if recipe.held_out else []
        for spec in recipe.unseen or ("procedural:spiral,seed=1",):
            said += ["--outside", spec]
        said += ["--eps", str(Linf(getattr(recipe.objective, "eps", 1 / 255))).partition(":")[2]]
    return shlex.join(["rood", "audit", *said, "--out", str(weights.parent / "audit")])


def _step(e: "Epoch") -> "Step":
    """An epoch as a step of progress."""
    from rood.evaluation.steps import Step

    accuracy = "" if e.accuracy is None else f", accuracy {e.accuracy:.3f}"
    accuracy += "" if e.robust_accuracy is None else f", attacked {e.robust_accuracy:.3f}"
    label = f"epoch {e.epoch} of {e.epochs}: loss {e.loss:.4f}{accuracy}, {e.seconds:.1f} s"
    return Step(label, e.epoch, e.epochs)
