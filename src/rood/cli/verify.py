"""`rood verify`: check a receipt without trusting who issued it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rood.cli import app, options

if TYPE_CHECKING:
    from rood.receipts.finding import Finding
    from rood.receipts.rescoring import Given

REFUTED, NOT_CHECKABLE = 3, 4  # exit codes
MODEL = typer.Option(
    help="Your copy of a network, [NAME=]SPEC as for rood audit --model; may be repeated."
)
DATA = typer.Option(
    help="Your copy of images: inside, train or an OOD set, NAME=SPEC; may be repeated."
)


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A receipt, as rood audit --receipt wrote it.")],
    tier: Annotated[str, typer.Option(help="schema, rescore or reattack.")] = "schema",
    nonce: Annotated[
        str,
        typer.Option(help="For reattack: a word that the issuer could not know; chooses images."),
    ] = "",
    key: Annotated[
        Path | None, typer.Option(help="Public key, PEM, of somebody who must have signed it.")
    ] = None,
    model: Annotated[list[str] | None, MODEL] = None,
    weights: Annotated[str | None, options.WEIGHTS] = None,
    data: Annotated[list[str] | None, DATA] = None,
    device: Annotated[str, options.DEVICE] = "auto",
    batch_size: Annotated[int | None, options.BATCH_SIZE] = None,
    trust: Annotated[bool, options.TRUST] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the findings as JSON on stdout.")
    ] = False,
) -> None:
    """Check a receipt: its files, its scores from the images, its attack by another one.

    reattack keeps what lowers a number in DIR/breaks.

    Exit code 0: every check passed. 3: the receipt says something that is not true. 4: something
    that is needed is not here, such as the images.
    """
    from rood.receipts.finding import Finding
    from rood.receipts.verify import verify as findings

    given = given_by(model, weights, data, device, batch_size, trust)
    found = list[Finding]()
    for one in findings(folder, tier, given, nonce, key):  # type: ignore[arg-type]  # it refuses other words
        found.append(one)
        if not as_json:
            typer.echo(_line(one))
    code = _code(found)
    if as_json:
        verdict = {0: "verified", REFUTED: "refuted", NOT_CHECKABLE: "not checkable"}[code]
        head = {"receipt": _digest(folder), "verdict": verdict, "tier": tier}
        told = head | {"findings": [asdict(f) for f in found]}
        typer.echo(json.dumps(told, indent=1))
    else:
        typer.echo(_outcome(found, tier))
    raise typer.Exit(code)


def _digest(folder: Path) -> str:
    from rood.errors import ResultsError
    from rood.receipts.receipt import Receipt

    try:
        return Receipt(folder).digest
    except ResultsError:
        return ""  # it is none, as the findings say


def given_by(
    model: list[str] | None,
    weights: str | None,
    data: list[str] | None,
    device: str,
    batch_size: int | None,
    trust: bool,
) -> "Given":
    """What the verifier names on the command line."""
    from rood.receipts.rescoring import Given

    return Given(
        models=dict(map(_pair, model or ())),
        weights=weights,
        data=dict(map(_named, data or ())),
        trust=trust,
        device=device,
        batch_size=batch_size,
    )


def _pair(text: str) -> tuple[str, str]:
    """("net", "x.pt2") of "net=x.pt2", ("", "x.pt2") of "x.pt2"."""
    name, equals, spec = text.partition("=")
    if not equals or ":" in name or "/" in name:  # the "=" is part of a path
        return "", text
    return name, spec


def _named(text: str) -> tuple[str, str]:
    from rood.errors import InputError

    name, spec = _pair(text)
    if not name:
        raise InputError(f"expected --data NAME=SPEC, NAME as in the receipt, got {text!r}")
    return name, spec


def _line(one: "Finding") -> str:
    from rood.report.words import shown

    word = {"pass": "ok  ", "fail": "LIE ", "open": "open"}[one.status]
    return f"{word} {one.tier} {one.check}: {shown(one.sentence, 400)}"


def _code(found: "list[Finding]") -> int:
    statuses = {f.status for f in found}
    return REFUTED if "fail" in statuses else NOT_CHECKABLE if "open" in statuses else 0


def _outcome(found: "list[Finding]", tier: str) -> str:
    code = _code(found)
    if code == REFUTED:
        return f"refuted by {found[-1].tier}: do not believe this receipt"
    if code == NOT_CHECKABLE:
        n = sum(f.status == "open" for f in found)
        return f"not checkable here: {n} of {len(found)} checks lack something"
    return f"verified: tier {tier}, {len(found)} checks"
