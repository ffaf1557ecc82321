"""`rood doctor`: is this the right network, are these the right images, what will an audit take?"""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rood.cli import app, options
from rood.cli.audit import named_sets, settings_of
from rood.cli.options import listed, numbers

if TYPE_CHECKING:
    from rood.evaluation.diagnosis import Diagnosis

COLOURS = {"ok": typer.colors.GREEN, "warn": typer.colors.YELLOW, "fail": typer.colors.RED}


@app.command()
def doctor(
    context: typer.Context,
    config: Annotated[Path | None, options.CONFIG] = None,
    model: Annotated[list[str] | None, options.MODEL] = None,
    weights: Annotated[str | None, options.WEIGHTS] = None,
    mean: Annotated[str | None, options.MEAN] = None,
    std: Annotated[str | None, options.STD] = None,
    size: Annotated[str | None, options.SIZE] = None,
    inside: Annotated[str | None, options.INSIDE] = None,
    outside: Annotated[
        list[str] | None, typer.Option(help="OOD images, [NAME=]SPEC; may be repeated.")
    ] = None,
    train: Annotated[str | None, options.TRAIN] = None,
    detectors: Annotated[
        str | None, typer.Option(help="Detector names, comma-separated, or all.")
    ] = None,
    eps: Annotated[
        str | None, typer.Option(help="Budgets, comma-separated: 8/255,l2:0.5,patch:8.")
    ] = None,
    attack: Annotated[str | None, options.ATTACK] = None,
    tier: Annotated[str | None, options.TIER] = None,
    limit: Annotated[int | None, typer.Option(help="Images per set; 0 for all.")] = None,
    device: Annotated[str | None, options.DEVICE] = None,
    skip_bad: Annotated[bool | None, options.SKIP_BAD] = None,
    trust: Annotated[bool, options.TRUST] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results as JSON on stdout.")
    ] = False,
) -> None:
    """Check network and images before an audit, in seconds, and print the command for it.

    Exits with 1 if a check failed. An audit makes the same checks first.
    """
    from rood.cli.show import waiting
    from rood.evaluation.prepare import diagnose

    given: dict[str, Any] = {
        "models": tuple(model) if model else None,
        "weights": weights,
        "mean": numbers("--mean", mean),
        "std": numbers("--std", std),
        "size": size,
        "inside": inside,
        "outside": named_sets(outside) if outside else None,
        "train": train,
        "detectors": listed("--detectors", detectors),
        "threats": () if eps == "none" else listed("--eps", eps),
        "attack": attack or ("worst_of" if tier else None),
        "device": device,
        "skip_bad": skip_bad,
        "trust": trust,
    }
    settings = settings_of(config, given, limit, {"tier": tier})
    with waiting("looking at network and images", quiet=as_json):
        found = diagnose(settings)
    failed = any(one.status == "fail" for one in found)
    then = "" if failed else shlex.join(["rood", "audit", *_words(context)])
    if as_json:
        typer.echo(json.dumps({"next": then, "results": [asdict(one) for one in found]}, indent=1))
    else:
        _show(found, then)
    if failed:
        raise typer.Exit(1)


def _show(found: Sequence["Diagnosis"], then: str) -> None:
    from rood.report.words import shown

    wide = max(len(one.check) for one in found)
    for one in found:
        mark = typer.style(f"{one.status:<4}", fg=COLOURS[one.status])
        typer.echo(f"{mark}  {one.check:<{wide}}  {shown(one.sentence(), 1000)}")
    counts = [sum(one.status == s for one in found) for s in ("fail", "warn")]
    typer.echo(f"{len(found)} results, {counts[0]} failed, {counts[1]} to look at")
    typer.echo(f"next: {then}" if then else "next: repair what failed, then `rood doctor` again")


def _words(context: typer.Context) -> Iterator[str]:
    """The same arguments for another command."""
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.name == "as_json" or value in (None, False, [], ()):
            continue
        name = [parameter.opts[0]] if parameter.param_type_name == "option" else []
        for one in value if isinstance(value, list | tuple) else [value]:
            yield from [*name, *([] if value is True else [str(one)])]
