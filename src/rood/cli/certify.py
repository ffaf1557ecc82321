"""`rood certify`: bound scores over everything that an attacker may do, without attacking."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from rood.cli import TYPED, app, options
from rood.cli.audit import carried_out, grouped, named_sets, placed, settings_of, write_settings
from rood.cli.options import listed, numbers


@app.command()
def certify(
    ctx: typer.Context,
    config: Annotated[Path | None, options.CONFIG] = None,
    model: Annotated[list[str] | None, options.MODEL] = None,
    weights: Annotated[str | None, options.WEIGHTS] = None,
    mean: Annotated[str | None, options.MEAN] = None,
    std: Annotated[str | None, options.STD] = None,
    size: Annotated[str | None, options.SIZE] = None,
    inside: Annotated[str | None, options.INSIDE] = None,
    outside: Annotated[list[str] | None, options.OUTSIDE] = None,
    groups: Annotated[list[str] | None, options.GROUPS] = None,
    train: Annotated[str | None, options.TRAIN] = None,
    detectors: Annotated[str | None, options.DETECTORS] = None,
    eps: Annotated[
        str | None, typer.Option(help="Budgets, comma-separated: 1/255,linf:8/255,l2:0.5.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="crown; ibp or crown-ibp: faster, looser; alpha: tighter, slower."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Results folder; an interrupted run continues.")] = Path(
        "certificates"
    ),
    limit: Annotated[int | None, options.LIMIT] = None,
    time: Annotated[
        str | None, typer.Option(help="Time limit, 90s, 10m, 2h: what does not fit is left out.")
    ] = None,
    device: Annotated[str | None, options.DEVICE] = None,
    seed: Annotated[int | None, options.SEED] = None,
    batch_size: Annotated[int | None, options.BATCH_SIZE] = None,
    engine: Annotated[str, options.ENGINE] = "local",
    workers: Annotated[int | None, options.WORKERS] = None,
    address: Annotated[str | None, options.ADDRESS] = None,
    skip_bad: Annotated[bool | None, options.SKIP_BAD] = None,
    write_config: Annotated[
        Path | None, typer.Option(help="Write all settings to this TOML file; certify nothing.")
    ] = None,
    anyway: Annotated[bool | None, options.ANYWAY] = None,
    trust: Annotated[bool, options.TRUST] = False,
    offline: Annotated[bool, options.OFFLINE] = False,
    as_json: Annotated[bool, options.AS_JSON] = False,
    quiet: Annotated[bool, options.QUIET] = False,
) -> None:
    """Prove how far attacks can lower OOD detectors, at the most: nothing is attacked.

    Without arguments: two networks and images that ship with rood.
    """
    from rood._offline import go_offline

    if offline:
        go_offline()
    given: dict[str, Any] = {
        "models": tuple(model) if model else None,
        "weights": weights,
        "mean": numbers("--mean", mean),
        "std": numbers("--std", std),
        "size": size,
        "inside": inside,
        "outside": named_sets(outside) if outside else None,
        "groups": grouped(groups) if groups else None,
        "train": train,
        "detectors": listed("--detectors", detectors),
        "threats": listed("--eps", eps),
        "time": time,
        "device": device,
        "seed": seed,
        "batch_size": batch_size,
        "skip_bad": skip_bad,
        "anyway": anyway,
        "trust": trust,
    }
    settings = settings_of(config, given, limit, {})
    by = method or settings.certify or "crown"
    settings = dataclasses.replace(settings, attacks=False, certify=by)
    if write_config is not None:
        return write_settings(settings, write_config, "certify")
    settings, where = placed(settings, engine, workers, address)
    carried_out(settings, out, ctx.meta[TYPED], where, as_json=as_json, quiet=quiet)
