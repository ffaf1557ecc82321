"""The figures of AUROC: clean against attacked, and against eps.

Colours are written as CSS variables; the page puts in their values, in dark mode other ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from rood.report.numbers import Numbers, budget, lowest
from rood.report.words import number, plot_text, shown

Drawing = dict[str, Any]  # data, layout, summary
GRID = {
    "gridcolor": "var(--rule)",
    "linecolor": "var(--rule)",
    "zeroline": False,
    "tickcolor": "var(--rule)",
    "fixedrange": True,
    "automargin": True,
}
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")
LINES = 8  # as many --line-… colours as the style sheet has


@dataclass(frozen=True)
class Choice:
    """One native selector over a figure."""

    label: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Figure:
    """One place on the page and everything that can be drawn there."""

    id: str
    choices: tuple[Choice, ...]
    layout: Mapping[str, Any]
    drawings: Mapping[str, Drawing]  # "1.0": option 1 of the first choice, 0 of the second
    highlight: bool = False  # offer to pick out one line

    @property
    def start(self) -> tuple[int, ...]:
        """The options shown first."""
        return tuple(int(i) for i in next(iter(self.drawings)).split("."))

    @property
    def names(self) -> list[str]:
        """Every line there is to pick out."""
        traces = [t for d in self.drawings.values() for t in d["data"] if t.get("meta")]
        return list(dict.fromkeys(trace["meta"] for trace in traces))


def base_layout(**extra: Any) -> dict[str, Any]:
    """What all figures share, with what one adds."""
    shared = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "var(--ink)", "size": 13},
        "hoverlabel": {
            "bgcolor": "var(--raised)",
            "bordercolor": "var(--rule)",
            "font": {"color": "var(--ink)"},
        },
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "xanchor": "left"},
        "margin": {"l": 8, "r": 16, "t": 8, "b": 8},
        "hovermode": "closest",
        "dragmode": False,
    }
    return dict(go.Layout({**shared, **extra}).to_plotly_json())


def trace(**settings: Any) -> dict[str, Any]:
    """One checked scatter trace as plain data."""
    return dict(go.Scatter(settings).to_plotly_json())


def coin_toss(axis: str) -> dict[str, Any]:
    """The line at AUROC 0.5."""
    other = "y" if axis == "x" else "x"
    line = {"color": "var(--ink)", "width": 1.2, "dash": "dot"}
    where = {f"{axis}0": 0.5, f"{axis}1": 0.5, f"{other}0": 0, f"{other}1": 1}
    refs = {f"{axis}ref": axis, f"{other}ref": "paper"}
    return {"type": "line", "line": line, "layer": "above", **where, **refs}


def fall(numbers: Numbers) -> Figure | None:
    """AUROC of every detector, clean and attacked from each side."""
    datasets = _all_datasets(numbers)
    families = list(numbers.families) or [""]
    drawings = {
        f"{m}.{d}.{f}": drawing
        for f, family in enumerate(families)
        for m, model in enumerate(numbers.models)
        for d, dataset in enumerate(datasets)
        if (drawing := _fall_drawing(numbers, model, dataset, family))
    }
    if not drawings:
        return None
    labels = tuple(budget(numbers.largest(f)[0]).label() if f else "none" for f in families)
    layout = base_layout(
        xaxis={**GRID, "range": [-0.02, 1.02], "title": {"text": "AUROC"}, "dtick": 0.25},
        shapes=[coin_toss("x")],
    )
    return Figure("fall", _choices(numbers, datasets, "Attack budget", labels), layout, drawings)


def _fall_drawing(numbers: Numbers, model: str, dataset: str, family: str) -> Drawing | None:
    scenarios = numbers.largest(family) if family else []
    points: list[dict[str, float]] = []
    names: list[str] = []
    for detector in numbers.detectors(model):
        found = {"clean": lowest(numbers.get("auroc", model, detector, dataset=dataset))}
        for side in ("outside", "inside", "both"):
            rows = numbers.get("auroc", model, detector, scenarios, (side,), dataset)
            found[side] = lowest(rows)
        values = {where: row.value for where, row in found.items() if row is not None}
        if values:
            points.append(values)
            names.append(detector)
    if not points:
        return None
    order = sorted(range(len(points)), key=lambda i: min(points[i].values()))
    points, names = [points[i] for i in order], [names[i] for i in order]
    ticks = {"tickvals": list(range(len(names))), "ticktext": [plot_text(name) for name in names]}
    yaxis = {**GRID, **ticks, "range": [-0.6, len(names) - 0.4], "showgrid": False}
    data = [_bars(points), *(_dots(points, names, where) for where in _MARKS)]
    summary = f"On {shown(model)} against {shown(dataset)}: " + "; ".join(
        f"{shown(name)} {_said(values)}"
        for name, values in reversed(list(zip(names, points, strict=True)))
    )
    return {
        "data": [t for t in data if t["x"]],
        "layout": {"yaxis": yaxis, "height": 132 + 34 * len(names)},
        "summary": summary + ".",
    }


# label, symbol, colour, and a shift that keeps equal values from hiding one another
_MARKS = {
    "clean": ("clean", "circle", "var(--clean)", 0.0),
    "outside": ("outside attacked", "triangle-down", "var(--outside)", 0.18),
    "inside": ("inside attacked", "triangle-up", "var(--inside)", -0.18),
    "both": ("both attacked", "diamond", "var(--both)", 0.0),
}


def _bars(points: list[dict[str, float]]) -> dict[str, Any]:
    x: list[float | None] = []
    y: list[float | None] = []
    for i, values in enumerate(points):
        x += [min(values.values()), max(values.values()), None]
        y += [i, i, None]
    line = {"color": "var(--rule)", "width": 5}
    return trace(x=x, y=y, mode="lines", line=line, hoverinfo="skip", showlegend=False)


def _dots(points: list[dict[str, float]], names: list[str], where: str) -> dict[str, Any]:
    label, symbol, colour, shift = _MARKS[where]
    at = [i for i, values in enumerate(points) if where in values]
    marker = {
        "symbol": symbol,
        "color": colour,
        "size": 11,
        "line": {"color": "var(--paper)", "width": 1},
    }
    return trace(
        x=[round(points[i][where], 4) for i in at],
        y=[i + shift for i in at],
        text=[plot_text(names[i], 60) for i in at],
        name=label,
        mode="markers",
        marker=marker,
        cliponaxis=False,
        hovertemplate="%{text}<br>" + label + ": %{x:.3f}<extra></extra>",
    )


def _said(values: dict[str, float]) -> str:
    return ", ".join(f"{_MARKS[where][0]} {number(value)}" for where, value in values.items())


def against_eps(numbers: Numbers) -> Figure | None:
    """AUROC of every detector as the attacker gets more room, both sides attacked."""
    datasets = _all_datasets(numbers)
    families = [f for f in numbers.families if budget(numbers.largest(f)[0]).text]
    drawings = {
        f"{m}.{d}.{f}": drawing
        for f, family in enumerate(families)
        for m, model in enumerate(numbers.models)
        for d, dataset in enumerate(datasets)
        if (drawing := _eps_drawing(numbers, model, dataset, family))
    }
    if not drawings:
        return None
    layout = base_layout(
        yaxis={**GRID, "range": [-0.02, 1.02], "title": {"text": "AUROC"}, "dtick": 0.25},
        xaxis={**GRID, "title": {"text": "eps (pixel units; 0 = clean)"}, "rangemode": "tozero"},
        shapes=[coin_toss("y")],
        annotations=[_COIN_TOSS_NOTE],
        legend={
            "orientation": "h",
            "x": 0,
            "y": -0.22,
            "yanchor": "top",
            "xanchor": "left",
            "maxheight": 2000,
        },
    )
    labels = tuple({"linf": "L∞", "l2": "L2"}.get(f, shown(f)) for f in families)
    return Figure(
        "eps", _choices(numbers, datasets, "Norm", labels), layout, drawings, highlight=True
    )


def _eps_drawing(numbers: Numbers, model: str, dataset: str, family: str) -> Drawing | None:
    traces, ends = [], []
    for i, detector in enumerate(numbers.detectors(model)):
        points: dict[float, float] = {}
        for row in numbers.get("auroc", model, detector, dataset=dataset):
            points[0.0] = min(row.value, points.get(0.0, 1.0))
        for row in numbers.get(
            "auroc", model, detector, numbers.families[family], ("both",), dataset
        ):
            eps = budget(row.scenario).eps
            points[eps] = min(row.value, points.get(eps, 1.0))
        if any(points):
            xs = sorted(points)
            traces.append(_line(i, detector, xs, [round(points[x], 4) for x in xs]))
            ends.append(f"{shown(detector)} {number(points[xs[0]])} → {number(points[xs[-1]])}")
    if not traces:
        return None
    summary = f"On {shown(model)} against {shown(dataset)}, from the smallest to the largest eps: "
    return {
        "data": traces,
        "layout": {"xaxis": _eps_ticks(numbers, family)},
        "summary": summary + "; ".join(ends) + ".",
    }


_COIN_TOSS_NOTE = {
    "text": "coin toss",
    "showarrow": False,
    "font": {"size": 11, "color": "var(--soft)"},
    "xref": "paper",
    "x": 1,
    "xanchor": "right",
    "y": 0.5,
    "yanchor": "bottom",
}


def _eps_ticks(numbers: Numbers, family: str) -> dict[str, Any]:
    """Budgets spelled as they were asked for: 8/255, not 0.03137."""
    budgets = {b.eps: b.text for b in map(budget, numbers.families[family])}
    texts = ["0", *(plot_text(text) for text in budgets.values())]
    return {"tickvals": [0.0, *budgets], "ticktext": texts, "ticklabeloverflow": "allow"}


def _line(i: int, detector: str, x: list[float], y: list[float]) -> dict[str, Any]:
    colour = f"var(--line-{i % LINES})"
    return trace(
        x=x,
        y=y,
        name=plot_text(detector, 22),
        meta=shown(detector),
        mode="lines+markers",
        line={"color": colour, "dash": DASHES[(i // LINES) % len(DASHES)], "width": 2},
        marker={"symbol": SYMBOLS[i % len(SYMBOLS)], "size": 8, "color": colour},
        cliponaxis=False,
        hovertemplate="%{y:.3f} at eps %{x}<extra>%{fullData.name}</extra>",
    )


def _all_datasets(numbers: Numbers) -> list[str]:
    return list(dict.fromkeys(d for model in numbers.models for d in numbers.datasets(model)))


def _choices(
    numbers: Numbers, datasets: list[str], label: str, labels: tuple[str, ...]
) -> tuple[Choice, ...]:
    return (
        Choice("Network", tuple(shown(model) for model in numbers.models)),
        Choice("Outside images", tuple(shown(dataset) for dataset in datasets)),
        Choice(label, labels),
    )
