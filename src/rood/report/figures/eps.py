"""AUROC of every detector against eps, both sides attacked."""

from functools import partial
from typing import Any

from rood.report.figures.base import AUROC, GRID, Drawing, Figure, coin_toss, labels, trace
from rood.report.numbers import NORMS, Numbers, budget, eps_of
from rood.report.words import number, plot_text, shown

DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")
CURVE = 3  # budgets from which points are joined by lines
SPREAD = 0.1  # of the axis, over which points of one budget are spread where there are no lines
LINES = 8  # as many --line-… colours as the style sheet has
COIN_TOSS_NOTE = {
    "text": "coin toss",
    "showarrow": False,
    "font": {"size": 11, "color": "var(--soft)"},
    "xref": "paper",
    "x": 1,
    "xanchor": "right",
    "y": 0.5,
    "yanchor": "bottom",
}


def figure(numbers: Numbers) -> Figure:
    """A drawing for each network, OOD set and norm."""
    families = [f for f in numbers.families if budget(numbers.largest(f)[0]).text]
    below = {"orientation": "h", "x": 0, "y": -0.26, "yanchor": "top", "xanchor": "left"}
    return Figure(
        "eps",
        menu="Budget",
        title="How large a budget the attacker needs",
        note="AUROC with both sides attacked, against the budget eps in pixel units; 0 is clean. "
        "An AUROC that rises with eps is a sign of a weak attack, not of a strong detector.",
        axes={
            "Network": labels(numbers.models),
            "OOD images": labels(numbers.all_datasets),
            "Norm": {f: NORMS.get(f, shown(f)) for f in families},
        },
        draw=partial(_draw, numbers),
        layout={
            "height": 340,
            "yaxis": AUROC,
            "xaxis": {
                **GRID,
                "title": {"text": "eps"},
                "rangemode": "tozero",
            },
            "shapes": [coin_toss("y")],
            "annotations": [COIN_TOSS_NOTE],
            "legend": {**below, "maxheight": 2000},
        },
        highlight=True,
        needed=False,
    )


def _draw(numbers: Numbers, model: str, dataset: str, family: str) -> Drawing | None:
    traces, ends = [], []
    budgets = len({eps_of(name) for name in numbers.families[family]})
    if budgets < 2:
        return None  # the first figure shows it all
    for i, detector in enumerate(numbers.detectors(model)):
        points: dict[float, float] = {}
        attacks = numbers.families[family]
        rows = numbers.get("auroc", model, detector, dataset=dataset)
        rows += numbers.get("auroc", model, detector, attacks, ("both",), dataset)
        for row in rows:
            eps = 0.0 if row.side == "none" else budget(row.scenario).eps
            points[eps] = min(row.value, points.get(eps, 1.0))
        if any(points):
            xs = sorted(points)
            traces.append(_line(i, detector, xs, [round(points[x], 4) for x in xs]))
            ends.append(f"{shown(detector)} {number(points[xs[0]])} → {number(points[xs[-1]])}")
    if not traces:
        return None
    summary = f"On {shown(model)} against {shown(dataset)}, from the smallest to the largest eps: "
    if budgets < CURVE:
        _scatter(traces)
    return {
        "data": traces,
        "layout": {"xaxis": _ticks(numbers, family)},
        "summary": summary + "; ".join(ends) + ".",
    }


def _ticks(numbers: Numbers, family: str) -> dict[str, Any]:
    """Budgets as the user wrote them: 8/255, not 0.03137."""
    budgets = {b.eps: b.short for b in map(budget, numbers.families[family])}
    texts = ["0", *(plot_text(text) for text in budgets.values())]
    title = {"text": f"eps ({NORMS.get(family, plot_text(family))})"}
    there = {"tickvals": [0.0, *budgets], "ticktext": texts, "ticklabeloverflow": "allow"}
    return {**there, "title": title}


def _scatter(traces: list[dict[str, Any]]) -> None:
    """Points side by side instead of a curve through two of them."""
    step = SPREAD * max(max(t["x"]) for t in traces) / max(1, len(traces) - 1)
    for i, one in enumerate(traces):
        one["mode"] = "markers"
        one["text"] = [f"{x:.3g}" for x in one["x"]]
        one["x"] = [float(f"{x + (i - (len(traces) - 1) / 2) * step:.5g}") for x in one["x"]]
        one["hovertemplate"] = "%{y:.3f} at eps %{text}<extra>%{fullData.name}</extra>"


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
