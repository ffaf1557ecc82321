"""The page of a reproduction: every number of the papers beside ours, in one file, offline."""

import base64
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from rood.errors import CapabilityError
from rood.evaluation.store import Store
from rood.report.templating import asset, embedded, environment, policy
from rood.report.words import plot_text, shown
from rood_papers.framework.cells import Cell
from rood_papers.framework.claims import UNDECIDED

WORDS = tomllib.loads((files(__package__) / "page.toml").read_text(encoding="utf-8"))
OUTCOMES = {None: "not tested", 1.0: "holds", 0.0: "does not hold", UNDECIDED: "undecided"}
MEANS = (" / near", " / far", " / mean")  # of several sets: what claims rest on
ORDER = tuple(WORDS["attacks"])
DRAW = """
const figures = JSON.parse(document.getElementById("figures").textContent);
for (const [id, f] of Object.entries(figures))
  Plotly.newPlot(id, f.data, f.layout, {displayModeBar: false, responsive: true});
"""
DRAWN = 230  # pixels from the top of a drawing to its axis
LEGEND = 19  # pixels of one name
COLOURS = ("#0072b2", "#d55e00", "#00835f", "#b9549b", "#b07a00", "#2f9bd6", "#44484f", "#7a3e9d")
DASHES = ("solid", "dash", "dot")


@dataclass(frozen=True)
class About:
    """What an experiment says of itself."""

    what: str
    why: str = ""


@dataclass(frozen=True)
class Line:
    """One row of a table, spelled out; shares in per cent."""

    row: str
    column: str
    attack: str
    paper: str
    ours: str
    interval: str
    difference: str
    n: str
    network: str
    note: str
    main: bool  # False: a detail that the paper does not print


@dataclass(frozen=True)
class Claim:
    """A sentence, what became of it, and the numbers."""

    text: str
    outcome: str  # a word of OUTCOMES
    numbers: str


@dataclass(frozen=True)
class Panel:
    """One drawing: curves by group."""

    title: str
    x: str
    y: str
    curves: Mapping[str, list[tuple[float, float]]]

    @property
    def scattered(self) -> bool:
        """Whether every curve is a single point."""
        return all(len(c) == 1 for c in self.curves.values())


@dataclass
class Section:
    """One experiment."""

    name: str
    about: About
    claims: list[Claim] = field(default_factory=list)
    tables: dict[str, list[Line]] = field(default_factory=dict)  # by metric
    panels: list[Panel] = field(default_factory=list)
    images: list[tuple[str, str]] = field(default_factory=list)  # title, file

    @property
    def anchor(self) -> str:
        return self.name.replace("/", "-")

    @property
    def networks(self) -> list[str]:
        every = (line.network for t in self.tables.values() for line in t)
        return sorted({n for n in every if n})


def sections(rows: Iterable[Cell], about: Mapping[str, About]) -> list[Section]:
    """One section per experiment, in the order of `about`, then of appearance."""
    rows = list(rows)
    names = dict.fromkeys([*about, *(r.experiment for r in rows)])
    found = []
    for name in names:
        mine = [r for r in rows if r.experiment == name]
        if mine:
            found.append(_section(name, about.get(name, About("")), mine))
    return found


def _section(name: str, about: About, rows: list[Cell]) -> Section:
    section = Section(name, about)
    printed = any(r.paper is not None for r in rows)
    for row in rows:
        if row.kind == "claim":
            section.claims.append(Claim(row.row, OUTCOMES[row.ours], row.column))
        elif row.kind == "image":
            section.images.append((f"{row.row}, {row.column}", row.file))
        elif row.kind == "cell":
            detail = printed and row.paper is None and " / " in row.column
            main = not detail or row.column.endswith(MEANS)
            section.tables.setdefault(row.metric, []).append(_line(row, main))
    for lines in section.tables.values():
        rows_in_order = list(dict.fromkeys((x.column, x.row) for x in lines))
        lines.sort(key=lambda x: (rows_in_order.index((x.column, x.row)), _rank(x.attack)))
    section.panels = _panels(rows)
    return section


def _rank(attack: str) -> int:
    return ORDER.index(attack) if attack in ORDER else len(ORDER)


def _line(row: Cell, main: bool) -> Line:
    known = row.ours is not None
    both = known and row.paper is not None
    change = row.ours - row.paper if row.ours is not None and row.paper is not None else 0.0
    spread = row.low is not None and row.high is not None and row.low < row.high
    return Line(
        row=row.row,
        column=row.column,
        attack=row.attack,
        paper=_number(row.paper, row.metric),
        ours=_number(row.ours, row.metric) if known else "not run",
        interval=f"{_number(row.low, row.metric)} to {_number(row.high, row.metric)}"
        if spread
        else "",
        difference=_number(change, row.metric, sign="+") if both else "",
        n=_count(row),
        network=row.network,
        note=row.note,
        main=main,
    )


def _count(row: Cell) -> str:
    return f"{row.n_in} / {row.n_out}" if row.n_out else (str(row.n_in) if row.n_in else "")


def _number(value: float | None, metric: str, sign: str = "") -> str:
    if value is None:
        return ""
    return f"{100 * value:{sign}.2f}" if metric in WORDS["shares"] else f"{value:{sign}.4g}"


def _panels(rows: list[Cell]) -> list[Panel]:
    curves: dict[tuple[str, str, str], dict[str, list[tuple[float, float]]]] = {}
    for row in rows:
        if row.kind == "point" and row.ours is not None and row.x is not None:
            # a scatter has one point a row: all of them belong into one drawing
            title = row.row if row.group != row.row else ""
            key = (title, row.column, row.metric)
            curves.setdefault(key, {}).setdefault(row.group, []).append((row.x, row.ours))
    return [Panel(title or y, x, y, groups) for (title, x, y), groups in curves.items()]


@dataclass(frozen=True)
class Shrunk:
    """One row of a paper as attacks get stronger: AUROC in per cent, empty where not run."""

    paper: str
    row: str
    column: str
    printed: str  # by the paper, under its own attack
    clean: str
    by_paper: str
    official: str
    standard: str


def shrinking(rows: Iterable[Cell]) -> list[Shrunk]:
    """Every row that our suite attacked, beside the same row under the paper's attacks."""
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    for r in rows:
        if r.kind == "cell" and r.metric == "auroc" and r.ours is not None:
            values = found.setdefault((r.experiment.partition("/")[0], r.row, r.column), {})
            values.setdefault(r.attack, _number(r.ours, r.metric))
            if r.attack in ("paper", "official") and r.paper is not None:
                values.setdefault("printed", _number(r.paper, r.metric))
    columns = ("printed", *ORDER)
    return [
        Shrunk(*key, *(values.get(c, "") for c in columns))
        for key, values in found.items()
        if "standard" in values
    ]


def write_page(rows: Iterable[Cell], about: Mapping[str, About], path: Path) -> Path:
    """Write the page; images are looked for beside it."""
    Store(path.parent).write_file(path.name, render(rows, about, path.parent).encode())
    return path


def render(rows: Iterable[Cell], about: Mapping[str, About], folder: Path) -> str:
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
            stronger=WORDS["stronger"],
            names=WORDS["metrics"],
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
    if path.suffix != ".png" or not os.path.isfile(path):
        return ""
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
