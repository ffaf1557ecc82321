"""Histograms of scores: ID and OOD images, clean and under attack."""

from functools import partial
from typing import Any

import numpy as np

from rood.evaluation.store import Array, Contents, Origin
from rood.report.figures.base import GRID, Drawing, Figure, labels, trace
from rood.report.numbers import Numbers, budget, eps_of, in_row_order, in_words
from rood.report.words import percent, shown

BINS = 40
MOST = 800  # drawings; beyond it only the strongest attack of each norm is drawn
ROLES = {"inside": "ID", "outside": "OOD"}
SHARE = {**GRID, "rangemode": "tozero", "tickformat": ".0%", "nticks": 4}

Pair = dict[str, Array]  # role -> scores
Sets = dict[Origin, Array]


def figure(folder: Contents, numbers: Numbers) -> Figure:
    """A drawing for each network, detector, OOD set and attack."""
    finite = {item.origin: item.scores[np.isfinite(item.scores)] for item in folder.scores}
    sets = {origin: scores for origin, scores in finite.items() if len(scores)}
    axes = _axes(sets, numbers)
    return Figure(
        "scores",
        menu="Scores",
        title="Where the scores go",
        note="Share of images by score, above without an attack and below under it. The dashed "
        "line is the deployed threshold. Scores beyond either end are counted in the outermost "
        "bin.",
        axes={
            label: {n: in_words(n) for n in names} if label == "Attack" else labels(names)
            for label, names in axes.items()
        },
        draw=partial(_draw, sets, numbers),
        layout={
            "height": 380,
            "xaxis": {**GRID, "title": {"text": "score (higher = more OOD)"}, "anchor": "y2"},
            "yaxis": {**SHARE, "domain": [0.55, 1.0], "title": {"text": "clean"}},
            "yaxis2": {**SHARE, "domain": [0.0, 0.45], "title": {"text": "under attack"}},
        },
    )


def _axes(sets: Sets, numbers: Numbers) -> dict[str, list[str]]:
    models = in_row_order(numbers.rows, "model", (o.model for o in sets))
    detectors = in_row_order(numbers.rows, "detector", (o.detector for o in sets))
    outside = (o.dataset for o in sets if o.role == "outside")
    datasets = in_row_order(numbers.rows, "dataset", outside) or [""]
    attacks = {o.condition for o in sets} - {"clean"}
    # strongest first: the findings speak of it
    conditions = sorted(attacks, key=lambda name: (budget(name).family, -eps_of(name), name))
    if len(models) * len(detectors) * len(datasets) * len(conditions) > MOST:
        kept = {name for family in numbers.families for name in numbers.largest(family)}
        conditions = [name for name in conditions if name in kept] or conditions[-1:]
    return {
        "Network": models,
        "Detector": detectors,
        "OOD images": datasets,
        "Attack": conditions or ["clean"],
    }


def _draw(
    sets: Sets, numbers: Numbers, model: str, detector: str, dataset: str, condition: str
) -> Drawing | None:
    clean = _pair(sets, model, detector, dataset, "clean")
    attacked = _pair(sets, model, detector, dataset, condition) if condition != "clean" else {}
    if "outside" not in clean and "outside" not in attacked:
        return None
    threshold = numbers.threshold(model, detector)
    low, high = _range([*clean.values(), *attacked.values()], threshold)
    data = [_steps(clean[r], r, low, high, "y", True) for r in clean]
    data += [_steps(attacked[r], r, low, high, "y2", r not in clean) for r in attacked]
    layout: dict[str, Any] = {"xaxis": {"range": [low, high]}}
    summary = f"{shown(detector)} on {shown(model)} against {shown(dataset)}."
    if threshold is not None:
        layout |= _threshold(threshold)
        summary += _accepted("without an attack", clean, threshold)
        summary += _accepted("under attack", attacked, threshold)
    return {"data": data, "layout": layout, "summary": summary}


def _pair(sets: Sets, model: str, detector: str, dataset: str, condition: str) -> Pair:
    found = {
        (o.dataset, o.role): scores
        for o, scores in sets.items()
        if (o.model, o.detector, o.condition) == (model, detector, condition)
    }
    # the images that set the threshold are ID too, but not those that were tested
    inside = [s for (name, role), s in found.items() if role == "inside" and name != "calibrate"]
    pair = {"inside": inside[0]} if inside else {}
    if (dataset, "outside") in found:
        pair["outside"] = found[dataset, "outside"]
    return pair


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
    pattern = {"fgcolor": "var(--outside-fill)", "bgcolor": "rgba(0,0,0,0)", "size": 6}
    hatch = {"fillpattern": {"shape": "/", **pattern}} if role == "outside" else {}
    return trace(
        x0=float(f"{low + width / 2:.6g}"),
        dx=float(f"{width:.6g}"),
        y=[float(f"{share:.3g}") for share in counts / len(scores)],
        name=ROLES[role],
        legendgroup=role,
        showlegend=in_legend,
        yaxis=axis,
        mode="lines",
        line={"shape": "hvh", "width": 1.6, "color": f"var(--{role})"},
        fill="tozeroy",
        fillcolor=f"var(--{role}-fill)",
        hovertemplate="%{y:.1%} of " + ROLES[role] + " images near %{x:.3g}<extra></extra>",
        **hatch,
    )


def _threshold(at: float) -> dict[str, Any]:
    """A line at the deployed threshold, with the decision on either side of it."""
    ink = {"color": "var(--ink)"}
    line = {"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1}
    word = {"x": at, "y": 0.5, "yref": "paper", "yanchor": "middle", "showarrow": False}
    word |= {"font": {"size": 12, **ink}}
    return {
        "shapes": [{**line, "line": {**ink, "width": 1.5, "dash": "dash"}}],
        "annotations": [
            {**word, "text": "← accepted", "xanchor": "right", "xshift": -4},
            {**word, "text": "rejected →", "xanchor": "left", "xshift": 4},
        ],
    }


def _accepted(when: str, pair: Pair, threshold: float) -> str:
    shares = [
        f"{percent(float(np.mean(scores <= threshold)))} of {ROLES[role]} images"
        for role, scores in pair.items()
    ]
    return f" Accepted {when}: {' and '.join(shares)}." if shares else ""
