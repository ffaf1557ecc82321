"""The figure of scores: where inside and outside images lie, before and under the attack."""

from typing import Any

import numpy as np

from rood.report.figures import GRID, Choice, Drawing, Figure, base_layout, trace
from rood.report.numbers import Numbers, budget, in_row_order, size
from rood.report.read import Array, Folder
from rood.report.words import percent, shown

BINS = 40
MOST = 800  # drawings; beyond it only the strongest attack of each norm is drawn

Pair = dict[str, Array]  # role -> scores
Sets = dict[tuple[str, str, str, str, str], Array]  # (model, detector, dataset, role, condition)


def histograms(folder: Folder, numbers: Numbers) -> Figure | None:
    """One drawing for each network, detector, outside set and attack."""
    sets: Sets = {}
    for item in folder.scores:
        finite = item.scores[np.isfinite(item.scores)]
        if len(finite):
            sets[item.origin] = finite
    models, detectors, datasets, conditions = _axes(sets, numbers)
    if len(models) * len(detectors) * len(datasets) * len(conditions) > MOST:
        kept = {name for family in numbers.families for name in numbers.largest(family)}
        conditions = [name for name in conditions if name in kept] or conditions[-1:]
    drawings = {
        f"{m}.{i}.{d}.{c}": drawing
        for m, model in enumerate(models)
        for i, detector in enumerate(detectors)
        for d, dataset in enumerate(datasets)
        for c, condition in enumerate(conditions)
        if (drawing := _drawing(sets, numbers, model, detector, dataset, condition))
    }
    if not drawings:
        return None
    choices = (
        Choice("Network", tuple(map(shown, models))),
        Choice("Detector", tuple(map(shown, detectors))),
        Choice("Outside images", tuple(map(shown, datasets))),
        Choice("Attack", tuple(map(shown, conditions))),
    )
    return Figure("scores", choices, _layout(), drawings)


def _axes(sets: Sets, numbers: Numbers) -> tuple[list[str], list[str], list[str], list[str]]:
    models = in_row_order(numbers.rows, "model", (key[0] for key in sets))
    detectors = in_row_order(numbers.rows, "detector", (key[1] for key in sets))
    outside = (key[2] for key in sets if key[3] == "outside")
    datasets = in_row_order(numbers.rows, "dataset", outside)
    attacks = {key[4] for key in sets} - {"clean"}
    # strongest first: it is what the verdict speaks of
    order = sorted(attacks, key=lambda name: (budget(name).family, -size(name), name))
    return models, detectors, datasets or [""], order or ["clean"]


def _layout() -> dict[str, Any]:
    title = {"text": "score (higher = more OOD)"}
    share = {**GRID, "rangemode": "tozero", "tickformat": ".0%", "nticks": 4}
    return base_layout(
        height=440,
        xaxis={**GRID, "title": title, "anchor": "y2"},
        yaxis={**share, "domain": [0.55, 1.0], "title": {"text": "clean"}},
        yaxis2={**share, "domain": [0.0, 0.45], "title": {"text": "under attack"}},
    )


def _drawing(
    sets: Sets, numbers: Numbers, model: str, detector: str, dataset: str, condition: str
) -> Drawing | None:
    clean, attacked = (_pair(sets, model, detector, dataset, name) for name in ("clean", condition))
    if not clean and not attacked:
        return None
    if not clean.keys() >= {"outside"} and not attacked.keys() >= {"outside"}:
        return None
    threshold = numbers.threshold(model, detector)
    low, high = _range([*clean.values(), *attacked.values()], threshold)
    data = [_steps(clean[r], r, low, high, "y", True) for r in clean]
    if condition != "clean":
        data += [_steps(attacked[r], r, low, high, "y2", r not in clean) for r in attacked]
    layout: dict[str, Any] = {"xaxis": {"range": [low, high]}}
    if threshold is not None:
        layout["shapes"] = [_threshold_line(threshold)]
        layout["annotations"] = _sides(threshold)
    summary = f"{shown(detector)} on {shown(model)} against {shown(dataset)}."
    if threshold is not None:
        summary += _accepted(threshold, clean, attacked if condition != "clean" else {})
    return {"data": data, "layout": layout, "summary": summary}


def _pair(sets: Sets, model: str, detector: str, dataset: str, condition: str) -> Pair:
    of_both = {
        (name, role): scores
        for (m, d, name, role, c), scores in sets.items()
        if (m, d, c) == (model, detector, condition)
    }
    # the images that set the threshold are inside ones too, but not those that were tested
    tested = {n: s for (n, role), s in of_both.items() if role == "inside" and n != "calibrate"}
    pair = {
        "inside": next(iter(tested.values()), None),
        "outside": of_both.get((dataset, "outside")),
    }
    return {role: scores for role, scores in pair.items() if scores is not None}


def _range(parts: list[Array], threshold: float | None) -> tuple[float, float]:
    # an attack can throw a few scores very far: they are counted in the outermost bins
    ends = np.concatenate([np.quantile(part, (0.005, 0.995)) for part in parts])
    low, high = float(ends.min()), float(ends.max())
    pad = 0.03 * (high - low) or 0.5
    if threshold is not None:  # with room for the words on either side of its line
        room = 5 * pad
        low, high = min(low, threshold - room), max(high, threshold + room)
    return float(f"{low - pad:.5g}"), float(f"{high + pad:.5g}")


def _steps(
    scores: Array, role: str, low: float, high: float, axis: str, in_legend: bool
) -> dict[str, Any]:
    width = (high - low) / BINS
    held = np.clip(scores, low + width / 2, high - width / 2)
    counts, _ = np.histogram(held, bins=BINS, range=(low, high))
    pattern = {
        "shape": "/",
        "fgcolor": "var(--outside-fill)",
        "bgcolor": "rgba(0,0,0,0)",
        "size": 6,
    }
    hatch = {"fillpattern": pattern} if role == "outside" else {}
    return trace(
        x0=float(f"{low + width / 2:.6g}"),
        dx=float(f"{width:.6g}"),
        y=[float(f"{share:.3g}") for share in counts / len(scores)],
        name=role,
        legendgroup=role,
        showlegend=in_legend,
        yaxis=axis,
        mode="lines",
        line={"shape": "hvh", "width": 1.6, "color": f"var(--{role})"},
        fill="tozeroy",
        fillcolor=f"var(--{role}-fill)",
        hovertemplate="%{y:.1%} of " + role + " images near %{x:.3g}<extra></extra>",
        **hatch,
    )


def _threshold_line(threshold: float) -> dict[str, Any]:
    line = {"color": "var(--ink)", "width": 1.5, "dash": "dash"}
    return {
        "type": "line",
        "x0": threshold,
        "x1": threshold,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": line,
    }


def _sides(threshold: float) -> list[dict[str, Any]]:
    font = {"size": 12, "color": "var(--ink)"}
    common = {
        "x": threshold,
        "y": 0.5,
        "yref": "paper",
        "showarrow": False,
        "font": font,
        "yanchor": "middle",
    }
    return [
        {**common, "text": "← accepted", "xanchor": "right", "xshift": -4},
        {**common, "text": "rejected →", "xanchor": "left", "xshift": 4},
    ]


def _accepted(threshold: float, clean: Pair, attacked: Pair) -> str:
    said = ""
    for words, pair in (("without an attack", clean), ("under attack", attacked)):
        shares = [
            f"{percent(float(np.mean(s <= threshold)))} of {role} images"
            for role, s in pair.items()
        ]
        if shares:
            said += f" Accepted {words}: {' and '.join(shares)}."
    return said
