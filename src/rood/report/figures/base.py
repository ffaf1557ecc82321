"""What a figure of the page is: one place, and a drawing for each choice of its selectors.

Colours are written as CSS variables; the page puts in their values for light and dark mode.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import plotly.graph_objects as go

from rood.report.words import shown

Drawing = dict[str, Any]  # data, layout, summary
GRID = {
    "gridcolor": "var(--rule)",
    "linecolor": "var(--rule)",
    "zeroline": False,
    "tickcolor": "var(--rule)",
    "fixedrange": True,
    "automargin": True,
}
MARGIN = {"l": 8, "r": 16, "t": 8, "b": 8}
SHARED = {
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "font": {"color": "var(--ink)", "size": 13},
    "hoverlabel": {
        "bgcolor": "var(--raised)",
        "bordercolor": "var(--rule)",
        "font": {"color": "var(--ink)"},
    },
    "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "xanchor": "left"},
    "margin": MARGIN,
    "hovermode": "closest",
    "dragmode": False,
}
OWN = {"x", "y", "x0", "x1", "dx", "text"}  # what differs from one drawing to the next


@dataclass(frozen=True)
class Figure:
    """One section of the page with a plot that selectors change."""

    id: str
    menu: str  # its name in the table of contents
    title: str
    note: str
    axes: Mapping[str, Mapping[str, str]]  # label of a selector -> what can be chosen: its label
    draw: Callable[..., Drawing | None]  # takes one choice of each axis
    layout: Mapping[str, Any]  # added to what all figures share
    highlight: bool = False  # offer to pick out one line
    needed: bool = True  # whether the page says so where there are no numbers for it

    @cached_property
    def drawings(self) -> dict[str, Drawing]:
        """Every drawing there is; "1.0" is choice 1 of the first selector and 0 of the second."""
        found = {}
        for chosen in product(*(enumerate(choices) for choices in self.axes.values())):
            if drawing := self.draw(*(name for _, name in chosen)):
                found[".".join(str(place) for place, _ in chosen)] = drawing
        return found

    @property
    def start(self) -> str:
        """The drawing shown first."""
        return next(iter(self.drawings))

    @property
    def lines(self) -> list[str]:
        """Every line there is to pick out."""
        traces = [t for d in self.drawings.values() for t in d["data"] if t.get("meta")]
        return list(dict.fromkeys(trace["meta"] for trace in traces))

    def compact(self) -> dict[str, Any]:
        """The figure as JSON data in which each style stands once.

        {"like": 3, "y": [...]} stands for styles[3] with its own y; the page puts them together.
        """
        styles: dict[str, int] = {}

        def short(node: Any, listed: bool = False) -> Any:
            if isinstance(node, list):
                return [short(item, listed=True) for item in node]
            if not isinstance(node, dict):
                return node
            if not listed:
                return {key: short(value) for key, value in node.items()}
            common = json.dumps({k: v for k, v in node.items() if k not in OWN}, sort_keys=True)
            own = {key: value for key, value in node.items() if key in OWN}
            return {"like": styles.setdefault(common, len(styles)), **own}

        return {
            "drawings": {key: short(drawing) for key, drawing in self.drawings.items()},
            "styles": [json.loads(style) for style in styles],
            "layout": go.Layout({**SHARED, **self.layout}).to_plotly_json(),
        }


def trace(**settings: Any) -> dict[str, Any]:
    """One checked scatter trace as plain data."""
    return dict(go.Scatter(settings).to_plotly_json())


def labels(names: Iterable[str]) -> dict[str, str]:
    """Choices that are labelled with their names."""
    return {name: shown(name) for name in names}


def coin_toss(axis: str) -> dict[str, Any]:
    """The line at AUROC 0.5."""
    other = "y" if axis == "x" else "x"
    line = {"color": "var(--ink)", "width": 1.2, "dash": "dot"}
    where = {f"{axis}0": 0.5, f"{axis}1": 0.5, f"{other}0": 0, f"{other}1": 1}
    refs = {f"{axis}ref": axis, f"{other}ref": "paper"}
    return {"type": "line", "line": line, "layer": "above", **where, **refs}


AUROC = {**GRID, "range": [-0.02, 1.02], "title": {"text": "AUROC"}, "dtick": 0.25}
