"""What stands under the title: when, what, how, on how many images, and the command."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rood.evaluation.store import Contents
from rood.report.numbers import Numbers, budget
from rood.report.tables import part
from rood.report.words import listed, percent, shown, whole

OPTIONS = ("tier", "steps", "restarts")  # of an attack, those that the page names
SIDES = {"outside": "OOD images", "inside": "ID images", "both": "both"}


class Fact(NamedTuple):
    """One line under the title."""

    name: str
    value: str


def facts(folder: Contents, numbers: Numbers) -> list[Fact]:
    """What the folder knows of these; folders of rood 0.1 know less."""
    manifest = folder.manifest or {}
    several = "s" if len(numbers.models) > 1 else ""
    found = [
        Fact("Date", date(manifest)),
        Fact(f"Network{several}", "; ".join(_network(numbers, m) for m in numbers.models)),
        Fact("Detectors", _names(numbers.all_detectors)),
        Fact("Attack", _attack(manifest, numbers)),
        Fact("Images per set", _images(manifest, numbers)),
    ]
    return [fact for fact in found if fact.value]


def command(folder: Contents) -> str:
    """The command that was typed; "" where the audit was started from Python or is of rood 0.1."""
    typed = (folder.manifest or {}).get("command")
    return shown(typed, 2000) if isinstance(typed, str) else ""


def date(manifest: Mapping[str, Any]) -> str:
    """When the audit ended, or was last written to; "" where that is unknown."""
    try:
        when = datetime.fromisoformat(str(manifest.get("date")))
        when = when.astimezone(UTC) if when.tzinfo else when
    except (ValueError, OverflowError):
        return ""
    return f"{when:%Y-%m-%d %H:%M} UTC"


def _network(numbers: Numbers, model: str) -> str:
    row = numbers.accuracy(model)
    if row is None:
        return shown(model)
    known = row.low is not None and row.high is not None
    between = f" [{percent(row.low)}, {percent(row.high)}]" if known else ""
    return f"{shown(model)}: accuracy {percent(row.value)}{between}"


def _names(names: list[str]) -> str:
    return listed([shown(name) for name in names], 8) if names else ""


def _attack(manifest: Mapping[str, Any], numbers: Numbers) -> str:
    if not numbers.scenarios:
        return "none"
    attacks = dict.fromkeys(s.rpartition(" ")[0] for s in numbers.scenarios)
    used = part(part(manifest, "settings"), "attack")
    options = ", ".join(f"{name} {shown(used[name])}" for name in OPTIONS if name in used)
    names = ", ".join(shown(name) for name in attacks if name)
    at = listed([budget(s).label() for s in numbers.scenarios])
    sides = {row.side for row in numbers.rows if row.metric == "auroc"}
    attacked = listed([words for side, words in SIDES.items() if side in sides])
    how = f"{names} ({options})" if options else names
    return f"{how} at {at}; attacked: {attacked}" if how else at


def _images(manifest: Mapping[str, Any], numbers: Numbers) -> str:
    """ID first: how many images the attacked numbers are of."""
    data = part(manifest, "data")
    rows = [r for r in numbers.rows if r.metric == "auroc" and r.n_in and r.n_out]
    attacked = [r for r in rows if r.side != "none"] or rows
    sizes = {f"OOD {shown(r.dataset)}": r.n_out for r in attacked}
    inside = max((r.n_in for r in attacked), default=0)
    said = [f"ID {whole(inside)}"] if inside else []
    said += [f"{name} {whole(n)}" for name, n in sizes.items()]
    threshold = part(data, "calibrate").get("n")
    if isinstance(threshold, int):
        said.append(f"{whole(threshold)} more ID images set the thresholds")
    return "; ".join(said)
