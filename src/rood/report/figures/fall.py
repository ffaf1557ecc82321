"""AUROC of every detector, clean and with each side attacked: the picture of the whole audit."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rood.evaluation.rows import Row
from rood.report.figures.base import AUROC, GRID, MARGIN, Drawing, Figure, coin_toss, labels, trace
from rood.report.numbers import Numbers, lowest
from rood.report.words import number, plot_text, shown

# label, symbol, colour, and a shift that keeps equal values from hiding one another
MARKS = {
    "none": ("clean", "circle", "var(--clean)", 0.0),
    "outside": ("OOD attacked", "triangle-down", "var(--outside)", 0.2),
    "inside": ("ID attacked", "triangle-up", "var(--inside)", -0.2),
    "both": ("both attacked", "diamond", "var(--both)", 0.0),
    "certified": ("certified", "line-ns-open", "var(--ink)", 0.0),
}
SIGNS = {"pass": "✓", "warn": "!", "fail": "✕"}
MOST_LINES = 16  # in one drawing of all networks
LINE = 30  # pixels
CLOSE = 24  # the same, where there are more than MOST_LINES


@dataclass(frozen=True)
class Line:
    """One detector of a drawing."""

    model: str
    detector: str
    rows: dict[str, Row]  # by side, with "none" for clean and "certified"

    @property
    def name(self) -> str:
        return plot_text(self.detector)

    @property
    def full_name(self) -> str:
        return f"{plot_text(self.detector, 60)} on {plot_text(self.model, 60)}"

    @property
    def ends(self) -> tuple[float, float]:
        values = [row.value for row in self.rows.values()]
        return min(values), max(values)

    @property
    def last(self) -> Row:
        """The row that decides: the lowest that was attacked, both sides if they were."""
        attacked = [r for side, r in self.rows.items() if side in ("outside", "inside", "both")]
        return self.rows.get("both") or lowest(attacked) or self.rows["none"]

    def summary(self) -> str:
        """The line beside its bar: from clean to attacked, and the verdict."""
        before, last = self.rows.get("none"), self.last
        start = f"{number(before.value)} → " if before and before is not last else ""
        return f"{start}{number(last.value)} {SIGNS.get(last.verdict, '')}".strip()


def figure(numbers: Numbers) -> Figure:
    """A drawing for each network, OOD set and norm, at the largest eps."""
    models = labels(numbers.models)
    several = len(numbers.models) > 1
    few = sum(len(numbers.detectors(m)) for m in numbers.models) <= MOST_LINES
    sets = labels(numbers.all_datasets)
    return Figure(
        "fall",
        menu="Clean → attacked",
        title="Clean → attacked",
        note="Each bar runs from a detector’s best to its worst AUROC; the thin line is the 95 % "
        "interval of the worst. ✓ ! ✕ judge the attack, not the detector: it passed, raised a "
        "warning, or failed its checks."
        + (" |: certified, no attack gets below it." if numbers.proved else ""),
        axes={
            "Network": ({"": "all networks"} | models) if several and few else models,
            "OOD images": ({"": "the hardest for each"} | sets) if len(sets) > 1 else sets,
            "Attack": numbers.strongest or numbers.proved or {"": "none"},
        },
        draw=partial(_draw, numbers),
        layout={"xaxis": AUROC, "shapes": [coin_toss("x")], "margin": {**MARGIN, "r": 112}},
    )


def _draw(numbers: Numbers, model: str, dataset: str, family: str) -> Drawing | None:
    models = [model] if model else numbers.models
    groups = [g for m in models if (g := _lines(numbers, m, dataset, family))]
    if not groups:
        return None
    places, at = list[tuple[float, Line]](), 0.0
    heads = []
    for group in reversed(groups):
        for line in reversed(group):
            places.append((at, line))
            at += 1
        if len(groups) > 1:
            heads.append(_head(group[0].model, at))
            at += 1.2
    ticks = {"tickvals": [y for y, _ in places], "ticktext": [line.name for _, line in places]}
    yaxis = {**GRID, **ticks, "range": [-0.6, at - 0.4], "showgrid": False}
    data = [_bars(places), *(_dots(places, side) for side in MARKS)]
    against = f"against {shown(dataset)}" if dataset else "on the hardest OOD images for each"
    said = [f"On {shown(group[0].model)}, {against}: {_said(group)}." for group in groups]
    return {
        "data": [t for t in data if t["x"]],
        "layout": {
            "yaxis": yaxis,
            "height": int(100 + (LINE if len(places) <= MOST_LINES else CLOSE) * at),
            "annotations": [*heads, *(_beside(y, line) for y, line in places)],
        },
        "summary": " ".join(said),
    }


def _lines(numbers: Numbers, model: str, dataset: str, family: str) -> list[Line]:
    """The detectors of a network, best first."""
    attacks = numbers.largest(family)
    only = dataset or None
    lines = []
    for detector in numbers.detectors(model):
        get = partial(numbers.get, model=model, detector=detector, dataset=only)
        found = {"none": lowest(get("auroc"))}
        for side in ("outside", "inside", "both"):
            found[side] = lowest(get("auroc", scenarios=attacks, sides=(side,)))
        found["certified"] = lowest(numbers.certified(model, detector, family, only))
        if rows := {side: row for side, row in found.items() if row is not None}:
            lines.append(Line(model, detector, rows))
    return sorted(lines, key=lambda line: (-line.last.value, line.detector))


def _bars(places: Sequence[tuple[float, Line]]) -> dict[str, Any]:
    x: list[float | None] = []
    y: list[float | None] = []
    for at, line in places:
        x += [*map(_rounded, line.ends), None]
        y += [at, at, None]
    style = {"color": "var(--bar)", "width": 7}
    return trace(x=x, y=y, mode="lines", line=style, hoverinfo="skip", showlegend=False)


def _dots(places: Sequence[tuple[float, Line]], side: str) -> dict[str, Any]:
    label, symbol, colour, shift = MARKS[side]
    there = [(at, line, line.rows[side]) for at, line in places if side in line.rows]
    edge = {"color": "var(--paper)" if "open" not in symbol else colour, "width": 1}
    size = 16 if side == "certified" else 11
    whiskers = {"error_x": _whiskers([row for _, _, row in there])} if side == "both" else {}
    return trace(
        x=[_rounded(row.value) for _, _, row in there],
        y=[at + shift for at, _, _ in there],
        text=[
            f"{plot_text(line.detector, 60)} on {plot_text(line.model, 60)}" for _, line, _ in there
        ],
        name=label,
        mode="markers",
        marker={"symbol": symbol, "color": colour, "size": size, "line": edge},
        cliponaxis=False,
        hovertemplate="%{text}<br>" + label + ": %{x:.3f}<extra></extra>",
        **whiskers,
    )


def _whiskers(rows: Sequence[Row]) -> dict[str, Any]:
    up = [_rounded((row.value if row.high is None else row.high) - row.value) for row in rows]
    down = [_rounded(row.value - (row.value if row.low is None else row.low)) for row in rows]
    style = {"color": "var(--both)", "thickness": 1.5, "width": 4}
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, **style}


def _beside(y: float, line: Line) -> dict[str, Any]:
    verdict = line.last.verdict
    colour = f"var(--{verdict})" if verdict in ("warn", "fail") else "var(--ink)"
    where = {"xref": "paper", "x": 1, "xanchor": "left", "xshift": 14, "y": y}
    return {**where, "text": line.summary(), "showarrow": False, "font": {"color": colour}}


def _head(model: str, y: float) -> dict[str, Any]:
    where = {"xref": "paper", "x": 0, "xanchor": "left", "y": y - 0.1}
    font = {"weight": 700, "color": "var(--ink)"}
    return {**where, "text": plot_text(model, 40), "showarrow": False, "font": font}


def _said(group: Sequence[Line]) -> str:
    words = lambda line: ", ".join(f"{MARKS[s][0]} {number(r.value)}" for s, r in line.rows.items())
    return "; ".join(f"{shown(line.detector)} {words(line)}" for line in group)


def _rounded(value: float) -> float:
    return round(value, 4)
