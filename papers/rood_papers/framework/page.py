"""The page of a reproduction: every number of the papers beside ours, in one file, offline."""

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from rood._files import write_whole
from rood.errors import CapabilityError
from rood.report.embed import embedded
from rood.report.templating import asset, environment, policy
from rood.report.words import plot_text, shown
from rood_papers.framework.rows import Row
from rood_papers.framework.sections import (
    NAMES,
    SHRINKING,
    About,
    Panel,
    Section,
    sections,
    shrinking,
)

__all__ = ["About", "render", "write_page"]

DRAW = """
const figures = JSON.parse(document.getElementById("figures").textContent);
for (const [id, f] of Object.entries(figures))
  Plotly.newPlot(id, f.data, f.layout, {displayModeBar: false, responsive: true});
"""
DRAWN = 230  # pixels from the top of a drawing to its axis
LEGEND = 19  # pixels of one name
COLOURS = ("#0072b2", "#d55e00", "#00835f", "#b9549b", "#b07a00", "#2f9bd6", "#44484f", "#7a3e9d")
DASHES = ("solid", "dash", "dot")


def write_page(rows: Iterable[Row], about: Mapping[str, About], path: Path) -> Path:
    """Write the page; images are looked for beside it."""
    write_whole(path, render(rows, about, path.parent).encode())
    return path


def render(rows: Iterable[Row], about: Mapping[str, About], folder: Path) -> str:
    """The page as one string: the same rows give the same bytes."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as e:
        raise CapabilityError("needs plotly to draw the page: pip install plotly") from e
    rows = list(rows)
    found = sections(rows, about)
    figures = {f"{s.anchor}-{i}": _figure(p) for s in found for i, p in enumerate(s.panels)}
    scripts = {"plotly_js": get_plotlyjs(), "page_js": DRAW}
    return (
        environment("rood_papers.framework", {"shown": shown})
        .get_template("reproduction.html.j2")
        .render(
            sections=found,
            tally=_tally(found),
            shrinking=shrinking(rows),
            what_is_left=SHRINKING,
            names=NAMES,
            images={f: _data(folder / f) for s in found for _, f in s.images},
            figures_json=Markup(embedded(figures)),
            page_css=Markup(asset("rood.report", "page.css")),
            policy=policy(scripts.values()),
            **{name: Markup(text) for name, text in scripts.items()},
        )
    )


def _tally(found: list[Section]) -> dict[str, int]:
    """How many cells were run, and what became of the claims."""
    lines = [line for s in found for t in s.tables.values() for line in t]
    outcomes = [c.outcome for s in found for c in s.claims]
    return {
        "cells": len(lines),
        "not_run": sum(line.ours == "not run" for line in lines),
        "holds": outcomes.count("holds"),
        "fails": outcomes.count("does not hold"),
        "undecided": outcomes.count("undecided"),
        "untested": outcomes.count("not tested"),
    }


def _figure(panel: Panel) -> dict[str, Any]:
    data = []
    for i, (group, curve) in enumerate(panel.curves.items()):
        again, at = divmod(i, len(COLOURS))  # colours come again with other dashes
        colour, dash = COLOURS[at], DASHES[again % len(DASHES)]
        x, y = zip(*sorted(curve), strict=True)
        trace: dict[str, Any] = {"x": x, "y": y, "name": plot_text(group, 90)}
        if panel.scattered:
            label = {"mode": "markers+text", "text": [plot_text(group)], "textposition": "top"}
            trace |= label | {"textposition": "top center", "showlegend": False}
        else:
            trace |= {"mode": "lines"}
        data.append(trace | {"line": {"color": colour, "dash": dash}, "marker": {"color": colour}})
    named = {"title": {"text": plot_text(panel.y, 60)}}
    names = 0 if panel.scattered else len(panel.curves)
    layout = {
        "title": {"text": plot_text(panel.title, 80), "font": {"size": 14}},
        "xaxis": {"title": {"text": plot_text(panel.x, 60), "standoff": 8}},
        "yaxis": {} if panel.title == panel.y else named,  # once is enough
        "height": 320 + LEGEND * names,
        "margin": {"l": 60, "r": 20, "t": 40, "b": 50 + LEGEND * names},
        # below the name of the axis: places are in heights of what is drawn
        "legend": {"x": 0, "xanchor": "left", "y": -60 / DRAWN, "yanchor": "top"},
    }
    return {"data": data, "layout": layout}


def _data(path: Path) -> str:
    """A PNG as a link that holds it; empty where it is not beside the page."""
    if path.suffix != ".png" or not path.is_file():
        return ""
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
