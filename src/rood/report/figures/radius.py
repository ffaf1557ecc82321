"""Histogram of certified radii: up to which eps the decision on an image is proved to stay."""

from functools import partial
from typing import Any

import numpy as np

from rood.evaluation.store import Contents, SavedRadii
from rood.report.figures.base import GRID, Drawing, Figure, labels, trace
from rood.report.numbers import Numbers, budget, in_row_order, in_words
from rood.report.words import percent, shown

BINS = 16
ROLES = {"inside": "ID", "outside": "OOD"}


def figure(folder: Contents, numbers: Numbers) -> Figure:
    """A drawing for each network, detector, OOD set and certificate."""
    found = [item for item in folder.radii if np.isfinite(item.radii).any()]
    names = lambda field, sets: in_row_order(
        numbers.rows, field, (getattr(item.origin, field) for item in sets)
    )
    outside = [item for item in found if item.origin.role == "outside"]
    conditions = sorted({item.origin.condition for item in found})
    return Figure(
        "radius",
        menu="Certified radius",
        title="How far each decision is certain",
        note="Share of images by the largest eps at which their decision, accept or reject, is "
        "proved to stay. At 0: nothing is proved. The last bar holds all that are certain at the "
        "largest budget.",
        axes={
            "Network": labels(names("model", found)),
            "Detector": labels(names("detector", found)),
            "OOD images": labels(names("dataset", outside)),
            "Certificate": {name: in_words(name) for name in conditions},
        },
        draw=partial(_draw, found),
        layout={
            "height": 260,
            "barmode": "group",
            "xaxis": {**GRID, "title": {"text": "certified radius (eps)"}},
            "yaxis": {**GRID, "rangemode": "tozero", "tickformat": ".0%", "nticks": 4},
        },
        needed=False,
    )


def _draw(
    found: list[SavedRadii], model: str, detector: str, dataset: str, condition: str
) -> Drawing | None:
    largest, data, said = budget(condition).eps, [], []
    for item in found:
        o = item.origin
        there = (o.model, o.detector, o.condition) == (model, detector, condition)
        if there and (o.role == "inside" or o.dataset == dataset):
            radii = item.radii[np.isfinite(item.radii)]
            data.append(_steps(radii, o.role, largest))
            certain = percent(float((radii > 0).mean()))
            middle = f"median radius {float(np.median(radii)):.3g}"
            said.append(f"{ROLES.get(o.role, 'OOD')}: {certain} certain at all, {middle}")
    if not data:
        return None
    summary = f"{shown(detector)} on {shown(model)}: {'; '.join(said)}."
    return {"data": data, "layout": {}, "summary": summary}


def _steps(radii: Any, role: str, largest: float) -> dict[str, Any]:
    """Radii in bins up to the largest eps, which has a bin of its own beyond."""
    width = largest / BINS
    held = np.clip(radii, 0.0, largest)
    counts, _ = np.histogram(held, bins=BINS + 1, range=(0.0, largest + width))
    role = role if role in ROLES else "outside"
    return trace(
        x0=float(f"{width / 2:.6g}"),
        dx=float(f"{width:.6g}"),
        y=[float(f"{share:.3g}") for share in counts / len(radii)],
        name=ROLES[role],
        mode="lines",
        line={"shape": "hvh", "width": 1.6, "color": f"var(--{role})"},
        fill="tozeroy",
        fillcolor=f"var(--{role}-fill)",
        hovertemplate="%{y:.1%} of " + ROLES[role] + " images near %{x:.3g}<extra></extra>",
    )
