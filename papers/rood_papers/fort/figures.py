"""FORT's figures: single images that move through the histogram, scores and AUROC against norms."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from rood.analysis.trajectory import Direction, Norm, auroc_curve
from rood.metrics import Interval
from rood_papers.fort.systems import (
    CLIP,
    DISTANCES,
    METHODS,
    NETWORKS,
    WHY,
    System,
    World,
    ready,
    walk,
)
from rood_papers.framework.cells import Cell
from rood_papers.framework.context import Context
from rood_papers.framework.experiment import Experiment, Part
from rood_papers.framework.intervals import histogram
from rood_papers.framework.paper import printed

FINE = 1e-4  # the step of the figures with one image
POINTS = 33
BARS = 30
QUARTILES = {"lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75}
AXES: dict[Norm, str] = {"linf": "L-infinity, in 1/255", "l2": "L2"}
UNITS: dict[Norm, float] = {"linf": 255.0, "l2": 1.0}


# one image


def one_image(place: str, system: System, direction: Direction, context: Context) -> Iterator[Part]:
    """The score of an image step by step, and the clean scores it moves through."""
    experiment = f"fort/{place}"
    facts = {"inside": "cifar100", "method": system.method}
    cells = tuple(
        Cell(
            experiment=experiment,
            row=system.method,
            column="one image",
            metric=metric,
            attack=attack,
            paper=printed("fort", place, metric=metric, **facts),
            note="read off the paper's figure; distances of other features have another scale",
        )
        for metric, attack in (("score_before", "clean"), ("score_after", "paper"))
    )
    yield Part(place, cells, partial(_moved, context, system, direction, cells))


def _moved(
    context: Context, system: System, direction: Direction, cells: Sequence[Cell]
) -> Iterator[Cell]:
    s = ready(context, system)
    way = walk(context, system, direction=direction, step=FINE, one=True)
    scores = way.scores[:, 0].double().cpu().numpy()
    for cell, score in zip(cells, (scores[0], scores[-1]), strict=True):
        yield cell.found(float(score), network=s.network)
    point = Cell(
        experiment=cells[0].experiment,
        row=system.method,
        column=AXES["linf"],
        metric="score",
        attack="paper",
        kind="point",
        network=s.network,
        group="the image",
    )
    for r, score in zip(way.linf[:, 0].tolist(), scores, strict=True):
        yield point.found(float(score), x=255 * r)
    bar = replace(point, column="score", metric="share of images")
    clean = {"in-distribution": s.clean_in, "OOD": s.clean_out}
    for group, x, share in histogram(clean, BARS):
        yield bar.found(share, group=group, x=x)


# many images


def scores_by_norm(place: str, method: str, context: Context) -> Iterator[Part]:
    """The quartiles of the attacked images' scores against both norms."""
    system = System(method)
    for norm in AXES:
        cell = _empty(f"fort/{place}", method, norm, "score")
        yield Part(f"{method}, {norm}", (cell,), partial(_quartiles, context, system, norm, cell))


def _quartiles(context: Context, system: System, norm: Norm, cell: Cell) -> Iterator[Cell]:
    s, way = ready(context, system), walk(context, system)
    for r in np.linspace(0, way.norms(norm).max().item(), POINTS):
        scores = way.at(norm, float(r))
        if scores is None:
            continue
        for group, share in QUARTILES.items():
            value = scores.double().quantile(share).item()
            yield cell.found(
                value, n_out=len(scores), group=group, x=float(r) * UNITS[norm], network=s.network
            )
    middle = s.clean_in.double().median().item()
    for r in (0.0, way.common_range(norm)[1]):
        yield cell.found(middle, len(s.clean_in), group="clean in-distribution", x=r * UNITS[norm])


def auroc_by_norm(
    place: str, systems: dict[str, System], context: Context, norms: Sequence[Norm] = ("linf", "l2")
) -> Iterator[Part]:
    """AUROC against norms, one curve a system."""
    for name, system in systems.items():
        for norm in norms:
            cell = _empty(f"fort/{place}", name, norm, "auroc")
            yield Part(f"{name}, {norm}", (cell,), partial(_curve, context, system, norm, cell))


def _curve(context: Context, system: System, norm: Norm, cell: Cell) -> Iterator[Cell]:
    s = ready(context, system)
    found = auroc_curve(walk(context, system), s.clean_in, norm, POINTS)
    for r, *interval in zip(found.radius, found.value, found.low, found.high, strict=True):
        if np.isnan(interval[0]):  # some image never had this norm
            continue
        around, x = Interval(*map(float, interval)), float(r) * UNITS[norm]
        yield cell.found(around, found.n_in, found.n_out, x=x, network=s.network)


def _empty(experiment: str, group: str, norm: Norm, metric: str) -> Cell:
    return Cell(
        experiment=experiment,
        row=group,
        column=AXES[norm],
        metric=metric,
        attack="paper",
        kind="point",
        group=group,
    )


_FAR = World(outside="svhn")
_VIT = "cifar100-vit; CIFAR-100 and CIFAR-10"


def _ensembles(method: str) -> dict[str, System]:
    return {name: System(method, World(networks=roles)) for name, roles in NETWORKS.items()}


def _sizes() -> dict[str, System]:
    sides = {"32x32": True, "network's size": False}
    return {f"{m}, {s}": System(m, World(small=v)) for m in DISTANCES for s, v in sides.items()}


_SINGLE: tuple[tuple[str, str, System, Direction], ...] = (
    ("figure1", "an image that is made to look out", System(DISTANCES[0]), "look_out"),
    ("figure2", "an OOD image that is made to look in", System(DISTANCES[0]), "look_in"),
    ("figure4", "the same for relative Mahalanobis", System(DISTANCES[1]), "look_in"),
    ("figure12", "the same for SVHN", System(DISTANCES[0], _FAR), "look_in"),
)
_SCORES = {"figure3": DISTANCES[0], "figure5": DISTANCES[1], "figure6": "MSP", "figure8": CLIP}
_CURVES: tuple[tuple[str, str, dict[str, System]], ...] = (
    ("figure7", "AUROC against the norm", {m: System(m) for m in (*METHODS, CLIP)}),
    ("figure9", "the same for two networks and their mean", _ensembles(DISTANCES[0])),
    ("figure10", "the same for relative Mahalanobis", _ensembles(DISTANCES[1])),
    ("figure11", "the same for attackers of few and of many pixels", _sizes()),
    ("figure13", "the same for SVHN", {m: System(m, _FAR) for m in DISTANCES}),
)


def _number(e: Experiment) -> int:
    return int(e.name.removeprefix("fort/figure"))


FIGURES: tuple[Experiment, ...] = tuple(
    sorted(
        (
            *(
                Experiment(
                    f"fort/{p}", what, _VIT, partial(one_image, p, system, direction), why=WHY
                )
                for p, what, system, direction in _SINGLE
            ),
            *(
                Experiment(
                    f"fort/{p}",
                    f"scores of {m} against the norm",
                    _VIT,
                    partial(scores_by_norm, p, m),
                    why=WHY,
                )
                for p, m in _SCORES.items()
            ),
            *(
                Experiment(f"fort/{p}", what, _VIT, partial(auroc_by_norm, p, systems), why=WHY)
                for p, what, systems in _CURVES
            ),
        ),
        key=_number,
    )
)
