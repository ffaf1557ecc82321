"""`rood audit`: attack detectors, show the table, write the folder and the page."""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rood.cli import app
from rood.cli.lists import listed, numbers
from rood.cli.options import Mean, Std, Weights

if TYPE_CHECKING:
    from rood.evaluation.engines import Engine
    from rood.evaluation.settings import AuditSettings

GATE = 3  # exit code where --fail-under is not met


@app.command()
def audit(
    config: Annotated[
        Path | None, typer.Argument(help="Settings as TOML; options go first.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Zoo name, checkpoint.safetensors, hf:NAME, timm:NAME, program.pt2, "
            "torchscript.pt or package.module:function; may be repeated."
        ),
    ] = None,
    weights: Weights = None,
    mean: Mean = None,
    std: Std = None,
    size: Annotated[
        str | None, typer.Option(help="Of the images: 32 or 32x48; default: the network's.")
    ] = None,
    inside: Annotated[
        str | None, typer.Option(help="In-distribution images: folder:DIR, npz:FILE, ...")
    ] = None,
    outside: Annotated[
        list[str] | None, typer.Option(help="OOD images, [NAME=]SPEC; may be repeated.")
    ] = None,
    train: Annotated[
        str | None, typer.Option(help="Labelled images that fit the detectors.")
    ] = None,
    detectors: Annotated[str | None, typer.Option(help="Names with commas, or all.")] = None,
    eps: Annotated[
        str | None, typer.Option(help="Budgets with commas: 1/255,linf:8/255,l2:0.5; or none.")
    ] = None,
    attack: Annotated[str | None, typer.Option(help="pgd, worst_of, ...; see rood list.")] = None,
    tier: Annotated[str | None, typer.Option(help="Of worst_of: quick, standard or full.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of the attack.")] = None,
    restarts: Annotated[int | None, typer.Option(help="Restarts of the attack.")] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the results; continued if it exists.")
    ] = Path("audit"),
    limit: Annotated[int | None, typer.Option(help="Images a set; 0 for all.")] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="A time, 90s, 10m, 2h: attack, images and detectors that fit it."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything that is drawn.")] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Images at once: speed, not scores; default: as memory allows."),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="local, or ray: workers on this machine or on a cluster.")
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(help="Of ray; default: one a core, or one a GPU.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Of a running Ray cluster; auto: the one of this machine.")
    ] = None,
    skip_bad: Annotated[
        bool | None, typer.Option("--skip-bad", help="Leave out unreadable images and count them.")
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Use only what is on this machine.")
    ] = False,
    fail_under: Annotated[
        float | None,
        typer.Option(help="Exit 3 if any detector's AUROC, both sides attacked, is below this."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Rows as JSON lines on stdout.")] = False,
) -> None:
    """Attack OOD detectors from both sides and say which can be trusted.

    Without arguments: two networks and images that ship with rood.
    """
    from rood._offline import go_offline
    from rood.cli.show import waiting
    from rood.evaluation.settings import prepare

    if offline:
        go_offline()
    given: dict[str, Any] = {
        "models": tuple(model) if model else None,
        "weights": weights,
        "mean": numbers("--mean", mean),
        "std": numbers("--std", std),
        "size": size,
        "inside": inside,
        "outside": _named(outside) if outside else None,
        "train": train,
        "detectors": listed("--detectors", detectors),
        "threats": () if eps == "none" else listed("--eps", eps),
        "attack": attack or ("worst_of" if tier else None),
        "budget": budget,
        "device": device,
        "seed": seed,
        "batch_size": batch_size,
        "skip_bad": skip_bad,
    }
    options = {"tier": tier, "steps": steps, "restarts": restarts}
    settings = _settings(config, given, limit, options)
    settings, where = _where(settings, engine, workers, address)
    with waiting("loading images and fitting detectors", quiet=as_json):
        plan, about = prepare(settings, _earlier(out))
    _tell(about)
    _run(plan, out, about, where, as_json)
    if fail_under is not None and (weak := _below(out, fail_under)):
        why = f"AUROC below {fail_under:g} or not to be believed, both sides attacked"
        typer.echo(f"gate: {why}: {weak}", err=True)
        raise typer.Exit(GATE)


def _settings(
    config: Path | None,
    given: dict[str, Any],
    limit: int | None,
    attack: dict[str, int | str | None],
) -> "AuditSettings":
    from rood import config as files
    from rood.evaluation.settings import AuditSettings

    base = files.load(AuditSettings, config) if config else AuditSettings()
    changes = {k: v for k, v in given.items() if v is not None}
    if limit is not None:
        changes["limit"] = limit or None
    options = {k: v for k, v in attack.items() if v is not None}
    if options:
        changes["attack_options"] = base.attack_options | options
    return dataclasses.replace(base, **changes)


def _where(
    settings: "AuditSettings", engine: str, workers: int | None, address: str | None
) -> tuple["AuditSettings", "Engine"]:
    """The engine; on a running cluster the device is the workers', and here it is what there is."""
    from rood.evaluation.engines import pick

    found = pick(engine, workers, address, settings.device)
    if address is not None and settings.device != "cpu":
        settings = dataclasses.replace(settings, device="auto")
    return settings, found


def _earlier(out: Path) -> dict[str, Any] | None:
    """What an unfinished run into the same folder chose for its time."""
    import json

    try:
        budget = json.loads((out / "manifest.json").read_text())["budget"]
    except (OSError, ValueError, KeyError, TypeError):  # what is wrong with it is said later
        return None
    return budget if isinstance(budget, dict) else None


def _tell(about: dict[str, Any]) -> None:
    from rood.report.words import shown

    if "budget" in about:
        typer.echo(f"budget: {about['budget']['chosen']}", err=True)
    for note in about.get("notes", ()):
        typer.echo(f"note: {shown(note, 1000)}", err=True)
    for note in about.get("skipped", ()):
        typer.echo(f"left out: {shown(note, 1000)}", err=True)


def _run(plan: Any, out: Path, about: dict[str, Any], engine: Any, as_json: bool) -> None:
    from rood.cli.show import progress, table
    from rood.evaluation.results import read_rows
    from rood.evaluation.run import run
    from rood.evaluation.store import Folder, said_plainly
    from rood.report import write_report
    from rood.report.words import shown

    for step in progress(run(plan, out, about, engine), "auditing", quiet=as_json):
        for row in step.rows:
            if as_json:
                sys.stdout.write(row.line())
        sys.stdout.flush()  # a reader at the other end of a pipe sees rows as they are made
    with said_plainly(out):
        page = write_report(out)
    if not as_json:
        table(list(read_rows(out)))
        typer.echo(f"report: {page}")
    for note in Folder(out).said("notes") or ():
        if note not in about.get("notes", ()):
            typer.echo(f"note: {shown(note, 1000)}", err=True)
    for name, images in plan.sets().items():
        for note in images.notes:
            typer.echo(f"note: {shown(name)}: {shown(note, 1000)}", err=True)


def _below(out: Path, bar: float) -> str:
    """The detectors that miss the bar, or whose attacked numbers are not to be believed."""
    from rood.evaluation.results import read_rows

    rows = [r for r in read_rows(out) if r.metric == "auroc" and r.side == "both"]
    weak = {f"{r.model} {r.detector}" for r in rows if r.value < bar or r.verdict == "fail"}
    return ", ".join(sorted(weak)) if rows else "nothing was attacked"


def _named(specs: list[str]) -> dict[str, str]:
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
