"""FORT's figures: single images that move through the histogram, scores and AUROC against norms."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from rood.analysis.trajectory import Direction, Norm, auroc_curve
from rood.metrics import Interval
from rood_papers.fort.systems import FILE, Case, ready, walk
from rood_papers.fort.tables import lines_of
from rood_papers.framework.cells import Cell, point
from rood_papers.framework.context import Context
from rood_papers.framework.experiment import Part
from rood_papers.framework.intervals import histogram
from rood_papers.framework.paper import printed

FINE = 1e-4  # the step of the figures with one image
POINTS = 33
BARS = 30
QUARTILES = {"lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75}
AXES: dict[Norm, str] = {"linf": "L-infinity, in 1/255", "l2": "L2"}
UNITS: dict[Norm, float] = {"linf": 255.0, "l2": 1.0}


# one image


def moved(place: str, context: Context) -> Iterator[Part]:
    """The score of an image step by step, and the clean scores it moves through."""
    ((case, _),) = lines_of(place)
    facts = {"inside": "cifar100", "method": case.method}
    cells = tuple(
        Cell(
            experiment=f"fort/{place}",
            row=case.method,
            column="one image",
            metric=metric,
            attack=attack,
            paper=printed("fort", place, metric=metric, **facts),
            note="read off the paper's figure; distances of other features have another scale",
        )
        for metric, attack in (("score_before", "clean"), ("score_after", "paper"))
    )
    direction = FILE["experiments"][place]["direction"]
    yield Part(place, cells, partial(_moved, context, case, direction, cells))


def _moved(
    context: Context, case: Case, direction: Direction, cells: Sequence[Cell]
) -> Iterator[Cell]:
    s = ready(context, case)
    way = walk(context, case, direction=direction, step=FINE, one=True)
    scores = way.scores[:, 0].double().cpu().numpy()
    for cell, score in zip(cells, (scores[0], scores[-1]), strict=True):
        yield cell.found(float(score), network=s.network)
    empty = _empty(cells[0].experiment, "the image", "linf", "score")
    step = replace(empty, row=case.method, network=s.network)
    for r, score in zip(way.linf[:, 0].tolist(), scores, strict=True):
        yield step.found(float(score), x=255 * r)
    bar = replace(step, column="score", metric="share of images")
    clean = {"in-distribution": s.clean_in, "OOD": s.clean_out}
    for group, x, share in histogram(clean, BARS):
        yield bar.found(share, group=group, x=x)


# many images


def scores(place: str, context: Context) -> Iterator[Part]:
    """The quartiles of the attacked images' scores against both norms."""
    for case, line in lines_of(place):
        for norm in AXES:
            cell = _empty(f"fort/{place}", line["name"], norm, "score")
            make = partial(_quartiles, context, case, norm, cell)
            yield Part(f"{line['name']}, {norm}", (cell,), make)


def _quartiles(context: Context, case: Case, norm: Norm, cell: Cell) -> Iterator[Cell]:
    s, way = ready(context, case), walk(context, case)
    for r in np.linspace(0, way.norms(norm).max().item(), POINTS):
        found = way.at(norm, float(r))
        if found is None:
            continue
        x = float(r) * UNITS[norm]
        for group, share in QUARTILES.items():
            value = found.double().quantile(share).item()
            yield cell.found(value, n_out=len(found), group=group, x=x, network=s.network)
    middle = s.clean_in.double().median().item()
    for r in (0.0, way.common_range(norm)[1]):
        yield cell.found(middle, len(s.clean_in), group="clean in-distribution", x=r * UNITS[norm])


def curves(place: str, context: Context) -> Iterator[Part]:
    """AUROC against norms, one curve per case."""
    for case, line in lines_of(place):
        for norm in AXES:
            cell = _empty(f"fort/{place}", line["name"], norm, "auroc")
            make = partial(_curve, context, case, norm, cell)
            yield Part(f"{line['name']}, {norm}", (cell,), make)


def _curve(context: Context, case: Case, norm: Norm, cell: Cell) -> Iterator[Cell]:
    s = ready(context, case)
    found = auroc_curve(walk(context, case), s.clean_in, norm, POINTS)
    for r, *interval in zip(found.radius, found.value, found.low, found.high, strict=True):
        if np.isnan(interval[0]):  # some image never had this norm
            continue
        around, x = Interval(*map(float, interval)), float(r) * UNITS[norm]
        yield cell.found(around, found.n_in, found.n_out, x=x, network=s.network)


def _empty(experiment: str, group: str, norm: Norm, metric: str) -> Cell:
    return point(experiment, group, AXES[norm], metric, "paper")
