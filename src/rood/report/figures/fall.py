"""AUROC of every detector, clean and with each side attacked."""

from functools import partial
from typing import Any

from rood.report.figures.base import AUROC, GRID, Drawing, Figure, coin_toss, labels, trace
from rood.report.numbers import Numbers, lowest
from rood.report.words import number, plot_text, shown

# label, symbol, colour, and a shift that keeps equal values from hiding one another
MARKS = {
    "none": ("clean", "circle", "var(--clean)", 0.0),
    "outside": ("OOD attacked", "triangle-down", "var(--outside)", 0.18),
    "inside": ("ID attacked", "triangle-up", "var(--inside)", -0.18),
    "both": ("both attacked", "diamond", "var(--both)", 0.0),
}


def figure(numbers: Numbers) -> Figure:
    """A drawing for each network, OOD set and norm, at the largest eps."""
    return Figure(
        "fall",
        menu="Clean and attacked",
        title="Clean against attacked",
        note="Each line spans from a detector’s best to its worst AUROC at the largest budget; "
        "the dotted line is the coin toss.",
        axes={
            "Network": labels(numbers.models),
            "OOD images": labels(numbers.all_datasets),
            "Attack budget": numbers.strongest or {"": "none"},
        },
        draw=partial(_draw, numbers),
        layout={"xaxis": AUROC, "shapes": [coin_toss("x")]},
    )


def _draw(numbers: Numbers, model: str, dataset: str, family: str) -> Drawing | None:
    attacks = numbers.largest(family)
    found: dict[str, dict[str, float]] = {}  # detector -> side: AUROC
    for detector in numbers.detectors(model):
        for side in MARKS:
            scenarios = ["clean"] if side == "none" else attacks
            row = lowest(numbers.get("auroc", model, detector, scenarios, (side,), dataset))
            if row is not None:
                found.setdefault(detector, {})[side] = row.value
    if not found:
        return None
    names = sorted(found, key=lambda name: min(found[name].values()))
    points = [found[name] for name in names]
    ticks = {"tickvals": list(range(len(names))), "ticktext": [plot_text(name) for name in names]}
    yaxis = {**GRID, **ticks, "range": [-0.6, len(names) - 0.4], "showgrid": False}
    data = [_bars(points), *(_dots(points, names, side) for side in MARKS)]
    said = [f"{shown(name)} {_said(found[name])}" for name in reversed(names)]
    return {
        "data": [t for t in data if t["x"]],
        "layout": {"yaxis": yaxis, "height": 132 + 34 * len(names)},
        "summary": f"On {shown(model)} against {shown(dataset)}: {'; '.join(said)}.",
    }


def _bars(points: list[dict[str, float]]) -> dict[str, Any]:
    x: list[float | None] = []
    y: list[float | None] = []
    for i, values in enumerate(points):
        x += [min(values.values()), max(values.values()), None]
        y += [i, i, None]
    line = {"color": "var(--rule)", "width": 5}
    return trace(x=x, y=y, mode="lines", line=line, hoverinfo="skip", showlegend=False)


def _dots(points: list[dict[str, float]], names: list[str], side: str) -> dict[str, Any]:
    label, symbol, colour, shift = MARKS[side]
    at = [i for i, values in enumerate(points) if side in values]
    edge = {"color": "var(--paper)", "width": 1}
    return trace(
        x=[round(points[i][side], 4) for i in at],
        y=[i + shift for i in at],
        text=[plot_text(names[i], 60) for i in at],
        name=label,
        mode="markers",
        marker={"symbol": symbol, "color": colour, "size": 11, "line": edge},
        cliponaxis=False,
        hovertemplate="%{text}<br>" + label + ": %{x:.3f}<extra></extra>",
    )


def _said(values: dict[str, float]) -> str:
    return ", ".join(f"{MARKS[side][0]} {number(value)}" for side, value in values.items())
