"""The page itself: everything a results folder holds, in one file that opens offline."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from rood._files import write_whole
from rood.evaluation.store import Contents, read_folder, readable_errors
from rood.report import findings, gallery, tables
from rood.report.figures import figures
from rood.report.numbers import Numbers
from rood.report.templating import asset, embedded, environment, policy
from rood.report.words import count, number, percent, shown


def write_report(folder: Path) -> Path:
    """Write the page of a results folder, finished or not.

    Parameters
    ----------
    folder : Path
        What `rood.audit` or `rood audit --out` wrote.

    Returns
    -------
    Path
        `folder/report.html`: one file that loads nothing from elsewhere.

    Raises
    ------
    ResultsError
        Where there is no results folder, or its rows cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from rood.report import write_report
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "manifest.json").write_text('{"finished": false}')
    >>> write_report(folder).name
    'report.html'
    """
    path = Path(folder) / "report.html"
    with readable_errors(path.parent):
        write_whole(path, render(read_folder(path.parent)).encode())
    return path


def render(folder: Contents) -> str:
    """The page as one string: the same folder gives the same bytes."""
    numbers = Numbers(folder.rows)
    drawn = figures(folder, numbers)
    scripts = {"plotly_js": get_plotlyjs(), "page_js": asset("rood.report", "page.js")}
    return (
        environment("rood.report", _filters())
        .get_template("page.html.j2")
        .render(
            **_facts(folder, numbers),
            figures=drawn,
            figures_json=Markup(embedded({f.id: f.compact() for f in drawn if f.drawings})),
            page_css=Markup(asset("rood.report", "page.css")),
            policy=policy(scripts.values(), images="data: blob:"),
            **{name: Markup(text) for name, text in scripts.items()},
        )
    )


def _facts(folder: Contents, numbers: Numbers) -> dict[str, Any]:
    manifest = folder.manifest or {}
    return {
        "headline": findings.headline(numbers),
        "sentences": findings.sentences(numbers),
        "unfinished": tables.unfinished(folder, numbers),
        "overview": _overview(numbers),
        "worst_cases": tables.worst_cases(numbers, manifest),
        "attacked": bool(numbers.families),
        "groups": gallery.groups(folder, numbers),
        "example_files": len(folder.examples),
        "flags": tables.flag_summaries(numbers),
        "fixed": tables.fixed(numbers),
        "table": tables.all_numbers(numbers),
        "split": tables.part(manifest, "split"),
        "data": tables.part(manifest, "data"),
        "null_spaces": tables.null_spaces(manifest),
        "detectors": tables.part(manifest, "detectors"),
        "cost": tables.cost(manifest),
        "skipped": tables.many(manifest, "skipped"),
        "notes": tables.many(manifest, "notes"),
        "time_limit": tables.part(manifest, "budget"),
        "version": manifest.get("rood") or tables.part(manifest, "versions").get("rood", ""),
        "manifest": json.dumps(manifest, indent=2, ensure_ascii=False, default=str),
        "limits": {"coin_toss": findings.COIN_TOSS, "holds": findings.HOLDS},
    }


def _overview(numbers: Numbers) -> str:
    parts = [
        count(len(numbers.models), "network"),
        count(len(numbers.all_detectors), "detector"),
        count(len(numbers.all_datasets), "OOD dataset"),
        count(len(numbers.scenarios), "attack") if numbers.scenarios else "no attack",
    ]
    return " · ".join(parts)


def _filters() -> dict[str, Callable[..., Any]]:
    return {
        "shown": shown,
        "number": number,
        "percent": percent,
        "span": _span,
        "plain_value": _plain_value,
    }


def _span(low: float | None, high: float | None) -> dict[str, float] | None:
    """Where an interval lies on a line of 100; nothing where it is unknown."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return None
    low, high = (100 * min(max(v, 0.0), 1.0) for v in (low, high))
    return {"left": round(low, 1), "width": round(high - low, 1)}


def _plain_value(value: object) -> str:
    """A manifest value in one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{shown(k)} = {_plain_value(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain_value, value))
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() else f"{value:.4g}"
    return shown(value, 300)
