"""`rood list`: every registered detector, attack, objective, image source and network."""

import dataclasses
import importlib
import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from rood.cli import app
from rood.registry import paper, unknown


@dataclass(frozen=True)
class Entry:
    """One line of a list."""

    name: str
    about: str  # the formula, or one sentence
    gradient: str = ""
    cost: str = ""  # forward and backward passes for one score
    paper: str = ""


def detectors() -> Iterator[Entry]:
    """Every detector, with formula, gradient kind, cost and paper."""
    from torch import nn

    from rood.detectors import registry
    from rood.models.wrap import wrap

    # any small network will do to ask what a detector costs with its defaults
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    model = wrap(net)
    for name in registry.names():
        make = registry.get(name)
        detector = make.example(model) if hasattr(make, "example") else make(model)
        forwards, backwards = detector.cost()
        cost = f"{forwards} forward" + (f", {backwards} backward" if backwards else "")
        doc = inspect.getdoc(type(detector)) or ""
        yield Entry(name, doc.splitlines()[0], detector.gradient, cost, paper(type(detector)))


def registered(package: str) -> Iterator[Entry]:
    """Every entry of a package's registry, with the first line of its docstring."""
    registry = importlib.import_module(package).registry
    for name in registry.names():
        entry = registry.get(name)
        doc = inspect.getdoc(entry) or ""
        yield Entry(name, doc.partition("\n")[0], paper=paper(entry))


def models() -> Iterator[Entry]:
    """Every network that ships with rood."""
    from rood.models import zoo

    for name in zoo.names():
        card = zoo.card(name)
        yield Entry(name, str(card.get("about", card.get("backbone", ""))))


KINDS: dict[str, Callable[[], Iterator[Entry]]] = {
    "detectors": detectors,
    "attacks": partial(registered, "rood.attacks"),
    "objectives": partial(registered, "rood.training.objectives"),
    "data": partial(registered, "rood.data"),
    "models": models,
}


@app.command("list")
def list_(
    kind: Annotated[
        str, typer.Argument(help="detectors, attacks, objectives, data or models; default: all.")
    ] = "all",
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines on stdout.")] = False,
) -> None:
    """List detectors, attacks, objectives, data and models."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if kind not in (*KINDS, "all"):
        raise unknown("list", kind, KINDS)
    console = Console(highlight=False)
    for name in KINDS if kind == "all" else [kind]:
        entries = [dataclasses.asdict(e) for e in KINDS[name]()]
        if as_json:
            for entry in entries:
                typer.echo(json.dumps({"kind": name} | entry))
            continue
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for entry in entries:
            table.add_row(escape(entry["name"]), _about(entry))
        console.print(f"[bold]{name}[/]", table, "", sep="\n")


def _about(entry: dict[str, str]) -> str:
    """The formula or sentence, and below it what else is known: fits a narrow terminal too."""
    from rich.markup import escape

    kind = entry["gradient"].replace("_", " ")
    facts = [f"gradient {kind}" if kind else "", entry["cost"], entry["paper"]]
    known = " · ".join(f for f in facts if f)
    return escape(entry["about"]) + (f"\n[dim]{escape(known)}[/]" if known else "")
