"""Rows of ALOE's Table 1 once more, each attacked through its own score."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from rood.shapes import Images, Scores
from rood.threat import Linf
from rood_papers.aloe.bench import Bench, World, worlds
from rood_papers.aloe.tables import (
    BY_SET,
    LAYERS,
    METRICS,
    ORIGINAL,
    TRAINED,
    WORST,
    compared_sides,
    in_adaptive,
)
from rood_papers.framework.adaptive import judged
from rood_papers.framework.cells import Cell
from rood_papers.framework.context import Context
from rood_papers.framework.experiment import Part
from rood_papers.framework.paper import printed

# in this order, so that what is claimed comes first where time runs out
GROUPS = (TRAINED[3], TRAINED[2], TRAINED[1], ORIGINAL, TRAINED[0], LAYERS)
EVERY_SECOND = "every second image"  # those that detectors of several passes are judged on


def adaptive(context: Context) -> Iterator[Part]:
    """A part a row."""
    for world in worlds(context, "cifar10", "cifar100", "gtsrb"):
        for group in GROUPS:
            for detector, row in group.rows.items():
                if not in_adaptive(context, world, row):
                    continue
                facts = {"inside": world.name, "method": row, "eps": 1}
                cells = [
                    Cell(
                        experiment="aloe/adaptive",
                        row=row,
                        column=world.name,
                        metric=metric,
                        attack="standard",
                        paper=printed("aloe", "table1", metric=metric, **facts),
                        note="beside it the number of the paper's own attack",
                    )
                    for metric in (*METRICS, WORST)
                ]
                make = partial(_attacked, context, world, group.role, detector, cells)
                yield Part(f"{world.name}/{row}", cells, make)


def _attacked(
    context: Context, world: World, role: str, detector: str, cells: Sequence[Cell]
) -> Iterator[Cell]:
    bench = Bench(context, world, role)
    judge = bench.mahalanobis() if detector == "mahalanobis" else bench.softmax()[detector]
    forwards, _ = judge.cost()
    inside, outside = sides(bench, fewer=forwards > 1)
    purpose = (world.name, role, detector)
    clean, found = judged(context, judge, inside, outside, Linf(world.level), purpose)
    network = bench.network.name
    yield from compared_sides(cells, "inside", clean, found, network)
    if forwards == 1:
        column = BY_SET.format(world.name, EVERY_SECOND)
        auroc = next(c for c in cells if c.metric == "auroc")
        cell = replace(auroc, column=column, paper=None, note="")
        mean, *_ = compared_sides([cell], "inside", _halved(clean), _halved(found), network)
        yield mean


def sides(bench: Bench, *, fewer: bool) -> tuple[Images, dict[str, Images]]:
    """In-distribution images and those of each OOD set; fewer: every second of them.

    A detector of several passes gets fewer images: the interval says so.
    """
    n, step = bench.context.size.standard, 2 if fewer else 1
    each = max(1, n // len(bench.world.outside))
    outside = {name: bench.pixels(name, each)[::step] for name in bench.world.outside}
    return bench.pixels(bench.inside, n)[::step], outside


def _halved(by_set: Mapping[str, Scores]) -> dict[str, Scores]:
    return {name: s[::2] for name, s in by_set.items()}
