"""The page itself: everything a results folder holds, in one file that opens offline."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from rood._files import write_whole
from rood.evaluation.rows import Row
from rood.evaluation.store import Contents, read_folder, readable_errors
from rood.report import findings, gallery, tables
from rood.report.asked import Sheet, asked
from rood.report.banner import doubts
from rood.report.by_network import by_network
from rood.report.facts import command, facts
from rood.report.figures import figures
from rood.report.glossary import GLOSSARY
from rood.report.numbers import Numbers, in_words
from rood.report.tables import Fixed, WorstCase
from rood.report.templating import asset, embedded, environment, policy
from rood.report.verdicts import Verdicts, flags_page
from rood.report.views import by_class, by_set
from rood.report.words import number, percent, shown


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
    drawn = [figure for figure in figures(folder, numbers) if figure.drawings or figure.needed]
    scripts = {"plotly_js": get_plotlyjs(), "page_js": asset("rood.report", "page.js")}
    return (
        environment("rood.report", _filters())
        .get_template("page.html.j2")
        .render(
            **_summary(folder, numbers),
            **_evidence(folder, numbers),
            **_record(folder),
            figures={figure.id: figure for figure in drawn},
            figures_json=Markup(embedded({f.id: f.compact() for f in drawn if f.drawings})),
            page_css=Markup(asset("rood.report", "page.css")),
            policy=policy(scripts.values(), images="data: blob:"),
            **{name: Markup(text) for name, text in scripts.items()},
        )
    )


def _summary(folder: Contents, numbers: Numbers) -> dict[str, Any]:
    """What a reader needs in the first ten seconds."""
    return {
        "headline": findings.headline(numbers),
        "doubts": doubts(folder, numbers),
        "facts": facts(folder, numbers),
        "command": command(folder),
        "sentences": findings.top(numbers),
        "all_sentences": by_network(numbers),
        "glossary": GLOSSARY,
    }


def _evidence(folder: Contents, numbers: Numbers) -> dict[str, Any]:
    """The numbers behind it."""
    worst = tables.worst_cases(numbers, folder.manifest or {})
    shares = tables.fixed(numbers)
    more = asked(numbers, folder.manifest or {})
    return {
        "worst_cases": worst,
        "attacked": bool(numbers.families),
        "verdicts": Verdicts(numbers, _with_badges(worst, shares, more)),
        "fixed": shares,
        "asked": more,
        "views": [*by_set(numbers), *by_class(folder, numbers)],
        "groups": gallery.groups(folder, numbers),
        "unfolded": {"groups": gallery.UNFOLDED, "pictures": gallery.SHOWN},
        "example_files": len(folder.examples),
        "flags": tables.flag_summaries(numbers),
        "table": tables.all_numbers(numbers),
    }


def _with_badges(
    worst: Iterable[WorstCase], shares: Iterable[Fixed], more: Iterable[Sheet]
) -> Iterator[Row]:
    """The rows whose verdict the page shows."""
    for case in worst:
        for line in case.lines:
            yield from filter(None, (*line.cells, line.passes and line.passes[1]))
    for table in shares:
        for _, _, cells in table.lines:
            yield from filter(None, cells)
    for sheet in more:
        for _, found in sheet.lines:
            yield from filter(None, found)


def _record(folder: Contents) -> dict[str, Any]:
    """What must be known to repeat it."""
    manifest = folder.manifest or {}
    return {
        "split": tables.part(manifest, "split"),
        "data": tables.part(manifest, "data"),
        "null_spaces": tables.null_spaces(manifest),
        "detectors": tables.part(manifest, "detectors"),
        "cost": tables.cost(manifest),
        "skipped": tables.many(manifest, "skipped"),
        "notes": tables.many(manifest, "notes"),
        "time_limit": tables.part(manifest, "time") or tables.part(manifest, "budget"),
        "version": manifest.get("rood") or tables.part(manifest, "versions").get("rood", ""),
        "manifest": json.dumps(manifest, indent=2, ensure_ascii=False, default=str),
    }


def _filters() -> dict[str, Callable[..., Any]]:
    return {
        "shown": shown,
        "number": number,
        "percent": percent,
        "in_words": in_words,
        "flags_page": flags_page,
        "plain_value": _plain_value,
    }


def _plain_value(value: object) -> str:
    """A manifest value in one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{shown(k)} = {_plain_value(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain_value, value))
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() else f"{value:.4g}"
    return shown(value, 300)
