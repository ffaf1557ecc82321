"""`rood audit`: attack detectors, show the table, write the folder and the page."""

import dataclasses
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rood.cli import TYPED, app, options
from rood.cli.ci import check, tell
from rood.cli.options import listed, numbers

if TYPE_CHECKING:
    from rood.evaluation.engines import Engine
    from rood.evaluation.plan import Plan
    from rood.evaluation.settings import AuditSettings
    from rood.evaluation.steps import Step
    from rood.evaluation.store import Results


@app.command()
def audit(
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
    open_set: Annotated[str | None, options.OPEN_SET] = None,
    corruptions: Annotated[int | None, options.CORRUPTIONS] = None,
    detectors: Annotated[str | None, options.DETECTORS] = None,
    eps: Annotated[
        str | None,
        typer.Option(help="Budgets, comma-separated: 8/255,l2:0.5,l1:4,l0:20,patch:8; or none."),
    ] = None,
    certify: Annotated[
        bool, typer.Option("--certify", help="Add lower bounds that no attack can get below.")
    ] = False,
    attack: Annotated[str | None, options.ATTACK] = None,
    tier: Annotated[str | None, options.TIER] = None,
    steps: Annotated[int | None, options.STEPS] = None,
    restarts: Annotated[int | None, options.RESTARTS] = None,
    out: Annotated[
        Path, typer.Option(help="Results folder; an interrupted audit continues.")
    ] = Path("audit"),
    limit: Annotated[int | None, options.LIMIT] = None,
    time: Annotated[
        str | None,
        typer.Option(help="Time limit, 90s, 10m, 2h: chooses attack, images and detectors."),
    ] = None,
    budget: Annotated[str | None, typer.Option(hidden=True)] = None,  # --time until 0.2
    device: Annotated[str | None, options.DEVICE] = None,
    seed: Annotated[int | None, options.SEED] = None,
    batch_size: Annotated[int | None, options.BATCH_SIZE] = None,
    engine: Annotated[str, options.ENGINE] = "local",
    workers: Annotated[int | None, options.WORKERS] = None,
    address: Annotated[str | None, options.ADDRESS] = None,
    skip_bad: Annotated[bool | None, options.SKIP_BAD] = None,
    write_config: Annotated[
        Path | None, typer.Option(help="Write all settings to this TOML file; audit nothing.")
    ] = None,
    anyway: Annotated[bool | None, options.ANYWAY] = None,
    trust: Annotated[bool, options.TRUST] = False,
    offline: Annotated[bool, options.OFFLINE] = False,
    junit: Annotated[
        Path | None, typer.Option(help="Write the outcome as a JUnit file, for CI servers.")
    ] = None,
    sarif: Annotated[
        Path | None, typer.Option(help="Write the outcome as a SARIF file, for code scanning.")
    ] = None,
    log_to: Annotated[
        str | None, typer.Option(help="Log numbers and page to a tracker: mlflow or wandb.")
    ] = None,
    fail_under: Annotated[
        float | None,
        typer.Option(help="Exit with 3 if an AUROC with both sides attacked is below this."),
    ] = None,
    receipt: Annotated[
        Path | None, typer.Option(help="Write a receipt here, for rood verify.")
    ] = None,
    by: Annotated[str, typer.Option(help="Who issues the receipt.")] = "",
    licence: Annotated[str, typer.Option(help="The licence of the receipt.")] = "",
    as_json: Annotated[bool, options.AS_JSON] = False,
    quiet: Annotated[bool, options.QUIET] = False,
) -> None:
    """Attack OOD detectors from both sides and report which can be trusted.

    Without arguments: two networks and images that ship with rood.
    """
    _begin(fail_under, log_to, offline)
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
        "open_set": listed("--open-set", open_set),
        "corruptions": corruptions,
        "detectors": listed("--detectors", detectors),
        "threats": () if eps == "none" else listed("--eps", eps),
        "certify": "crown" if certify else None,
        "attack": attack or ("worst_of" if tier else None),
        "time": time or _renamed(budget),
        "device": device,
        "seed": seed,
        "batch_size": batch_size,
        "skip_bad": skip_bad,
        "anyway": anyway,
        "trust": trust,
    }
    settings = settings_of(config, given, limit, dict(tier=tier, steps=steps, restarts=restarts))
    if write_config is not None:
        return write_settings(settings, write_config)
    settings, where = placed(settings, engine, workers, address)
    shown, who = dict(as_json=as_json, quiet=quiet), dict(by=by, licence=licence)
    results = carried_out(settings, out, ctx.meta[TYPED], where, **shown, receipt=receipt, who=who)
    tell(results, fail_under, junit=junit, sarif=sarif, log_to=log_to, quiet=quiet or as_json)


def placed(
    settings: "AuditSettings", engine: str, workers: int | None, address: str | None
) -> "tuple[AuditSettings, Engine]":
    """The engine, and the settings on this side of it: with --address, --device is the workers'."""
    from rood.evaluation.engines import pick

    where = pick(engine, workers, address, settings.device)
    if address is not None and settings.device != "cpu":
        settings = dataclasses.replace(settings, device="auto")
    return settings, where


def _begin(bar: float | None, log_to: str | None, offline: bool) -> None:
    from rood._offline import go_offline

    check(bar, log_to)
    if offline:
        go_offline()


def carried_out(
    settings: "AuditSettings",
    out: Path,
    typed: str,
    engine: "Engine | None",
    *,
    as_json: bool,
    quiet: bool,
    receipt: Path | None = None,
    who: dict[str, str] | None = None,
) -> "Results":
    """Plan, run and show; the folder's results."""
    from rood import api

    with _no_early_exit():
        plan = _planned(settings, out, quiet or as_json)
        plan = dataclasses.replace(plan, about={**plan.about, "command": typed})
        title = "auditing" if settings.attacks else "certifying"
        show = partial(_shown, title=title, as_json=as_json, quiet=quiet)
        results = api.carry_out(plan, out, engine, show, receipt=receipt, who=who or {})
    _show(results, plan, as_json, receipt)
    return results


def write_settings(settings: "AuditSettings", path: Path, command: str = "audit") -> None:
    """Write a settings file, and say how to use it."""
    from rood._files import write_whole
    from rood.evaluation.store import readable_errors

    with readable_errors(path):
        write_whole(path, settings.to_toml().encode())
    typer.echo(f"settings: {path}; use them by: {shlex.join(['rood', command, str(path)])}")


def _renamed(budget: str | None) -> str | None:
    """The value of --budget, as --time was called until 0.2."""
    from rood.cli.show import note

    if budget is not None:
        note("--budget is called --time now", "deprecated")
    return budget


def settings_of(
    config: Path | None,
    given: dict[str, Any],
    limit: int | None,
    attack: dict[str, int | str | None],
) -> "AuditSettings":
    """The settings of a file, changed by the options that were given."""
    from rood.evaluation.settings import AuditSettings, read_settings, refuse_code

    base = read_settings(config, trust=given["trust"]) if config else AuditSettings()
    if config and not given["models"]:  # what --model names is the user's own word
        refuse_code(base, config)
    changes = {k: v for k, v in given.items() if v is not None}
    if limit is not None:
        changes["limit"] = limit or None
    if chosen := {k: v for k, v in attack.items() if v is not None}:
        changes["attack_options"] = base.attack_options | chosen
    return dataclasses.replace(base, **changes)


def _planned(settings: "AuditSettings", out: Path, quiet: bool) -> "Plan":
    from rood import api
    from rood.cli.show import waiting

    with waiting("loading images and fitting detectors", quiet=quiet):
        plan = api.plan(settings, out)
    _tell(plan)
    return plan


def _tell(plan: "Plan") -> None:
    from rood.cli.show import note

    if "chosen" in plan.about.get("time", ()):
        typer.echo(f"time: {plan.about['time']['chosen']}", err=True)
    for text in plan.about.get("notes", ()):
        note(text)
    for text in plan.about.get("skipped", ()):
        note(text, "skipped")


def _shown(steps: Iterable["Step"], title: str, *, as_json: bool, quiet: bool) -> Iterator["Step"]:
    """Draw the progress, or print the rows as they are made."""
    from rood.progress import drawn

    for step in drawn(steps, title, quiet=quiet or as_json):
        if as_json and step.rows:  # echo flushes, for a reader at the other end of a pipe
            typer.echo("".join(row.line() for row in step.rows), nl=False)
        yield step


def _show(results: "Results", plan: "Plan", as_json: bool, receipt: Path | None) -> None:
    from rood.cli.show import note, table
    from rood.evaluation.store import Store

    if not as_json:
        table(results.rows)
        typer.echo(f"report: {results.folder / 'report.html'}")
        if receipt is not None:
            typer.echo(f"receipt: {receipt}")
    for text in Store(results.folder).said("notes") or ():
        if text not in plan.about.get("notes", ()):
            note(text)
    for name, images in plan.sets().items():
        for text in images.notes:
            note(text, "note", name)


@contextmanager
def _no_early_exit() -> Iterator[None]:
    """A network that raises typer.Exit(0) does not end the audit with success."""
    try:
        yield
    except typer.Exit as e:
        raise SystemExit(e.exit_code) from e


def grouped(texts: list[str]) -> dict[str, str]:
    """["folder", "dtd=video"] as {"*": "folder", "dtd": "video"}."""
    pairs = [text.rpartition("=") for text in texts]
    return {name if equals else "*": how for name, equals, how in pairs}


def named_sets(specs: list[str]) -> dict[str, str]:
    """["dtd=folder:x", "npz:y.npz"] as {"dtd": "folder:x", "y": "npz:y.npz"}."""
    from rood.errors import InputError

    named: dict[str, str] = {}
    for text in specs:
        name, equals, spec = text.partition("=")
        if not equals or ":" in name or "/" in name:  # the "=" is part of a path
            name, spec = Path(text.partition(":")[2] or text).resolve().stem, text
        if name in named:
            raise InputError(f"expected each OOD set to have its own name, got {name!r} twice")
        named[name] = spec
    return named
