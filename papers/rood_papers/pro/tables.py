"""PRO's tables: every detector on a plain and on a robust network, near and far."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from rood.metrics import Interval, summary
from rood.shapes import Scores
from rood_papers.framework.cells import Cell
from rood_papers.framework.context import Context
from rood_papers.framework.experiment import Part
from rood_papers.framework.intervals import averaged, gain
from rood_papers.framework.paper import printed
from rood_papers.pro.bench import (
    BASES,
    CIFAR10,
    CIFAR100,
    PLAIN,
    Bench,
    World,
    chosen,
    world_of,
)

METRICS = ("auroc", "fpr95_out")
GAIN = "auroc_gain"  # over the base
OVER = {**PLAIN, "ODIN": "MSP"}  # whose gain is asked for, and over which base
ROWS1 = (
    *("MSP", "ODIN", "MDS", "GEN", "EBO", "VIM", "KNN", "ASH", "Scale"),
    *(*BASES, PLAIN["PRO-GEN"]),
)
ROWS2 = (
    *("MSP", "Entropy", "TempScaling", "GEN", "VIM", "KNN", "ODIN", "EBO", "MLS", "RMDS", "Scale"),
    *BASES,
)
PAPERS_NAMES = {  # of the sets
    "cifar100/test": "cifar100",
    "cifar10/test": "cifar10",
    "scenes": "places365",
}
GROUPS = ("near", "far", "mean")


def table1(context: Context) -> Iterator[Part]:
    """CIFAR-10; beside the paper's two kinds of network those that were trained against attacks."""
    world = world_of(context, CIFAR10)
    nets = list(world.roles)[:2] if context.size.name == "tiny" else list(world.roles)
    yield from _table(context, "table1", world, ROWS1, nets)


def table2(context: Context) -> Iterator[Part]:
    """CIFAR-100."""
    nets = ("default",) if context.size.name == "tiny" else ("default", "robust")
    yield from _table(context, "table2", world_of(context, CIFAR100), ROWS2, nets)


def figure4(context: Context) -> Iterator[Part]:
    """Four scores with and without PRO on every CIFAR-10 network there is."""
    world = world_of(context, CIFAR10)
    rows = (*PLAIN.values(), *PLAIN)
    nets = list(world.roles)[:2] if context.size.name == "tiny" else list(world.roles)
    yield from _table(context, "figure4", world, rows, nets, sets=("near", "far"))


def _table(
    context: Context,
    place: str,
    world: World,
    rows: Sequence[str],
    nets: Sequence[str],
    sets: Sequence[str] = (),
) -> Iterator[Part]:
    for net in nets:
        cells = [
            Cell(
                experiment=f"pro/{place}",
                row=row,
                column=f"{net} / {name}",
                metric=metric,
                paper=_printed(place, world, net, row, name, metric),
                note=_note(place, net, row, name, metric),
            )
            for row in rows
            for name in (sets or (*world.outside, *GROUPS))
            for metric in (*METRICS, *([GAIN] if row in OVER and name in ("near", "mean") else ()))
        ]
        make = partial(_measured, context, world, net, rows, cells)
        yield Part(f"{world.name}/{net}", cells, make)


def _measured(
    context: Context, world: World, net: str, rows: Sequence[str], cells: Sequence[Cell]
) -> Iterator[Cell]:
    bench = Bench(context, world, world.roles[net])
    scores = bench.scores()
    found = {(row, n): s for row in rows for n, s in by_set(bench, scores, row).items()}
    count = {n: len(bench.pixels(n)) for n in world.outside}
    members = {"near": world.near, "far": world.far, "mean": world.outside}
    for cell in cells:
        name = cell.column.partition(" / ")[2]
        n_out = sum(count[n] for n in members.get(name, (name,)))
        n_in = len(bench.pixels(bench.inside))
        settled = replace(cell, note=_settled(bench, cell))
        yield settled.found(
            found[cell.row, name][cell.metric], n_in, n_out, network=bench.network.name
        )


def by_set(
    bench: Bench, scores: Mapping[str, Mapping[str, Scores]], row: str
) -> dict[str, dict[str, Interval]]:
    """The metrics of each OOD set, and of the groups as their means."""
    world, inside = bench.world, scores[bench.inside]
    found = {n: summary(inside[row], scores[n][row]) for n in world.outside}
    base = OVER.get(row)
    if base is not None:
        for n in world.outside:
            found[n][GAIN] = gain(inside[row], scores[n][row], inside[base], scores[n][base])
    metrics = METRICS if base is None else (*METRICS, GAIN)
    for group, names in (("near", world.near), ("far", world.far), ("mean", world.outside)):
        found[group] = {m: averaged([found[n][m] for n in names]) for m in metrics}
    return found


def _settled(bench: Bench, cell: Cell) -> str:
    """The note with what validation chose."""
    options = chosen(cell.row, bench.detectors()[cell.row], bench.unit)
    return "; ".join(filter(None, (cell.note, options)))


def _printed(place: str, world: World, net: str, row: str, name: str, metric: str) -> float | None:
    if metric == GAIN:  # over the base as the paper has it, GEN with options of its own
        base = OVER[row].partition(",")[0]
        pair = [_printed(place, world, net, m, name, "auroc") for m in (row, base)]
        return None if pair[0] is None or pair[1] is None else pair[0] - pair[1]
    outside = PAPERS_NAMES.get(name, name)
    facts = {"inside": world.name, "model": net, "method": row, "metric": metric}
    return printed("pro", place, outside=outside, **facts)


def _note(place: str, net: str, row: str, name: str, metric: str) -> str:
    notes = []
    if metric == GAIN:
        notes.append(f"less {OVER[row]}, of the same images; the paper's of two printed numbers")
    if name == "scenes":
        notes.append("scenes stand in for Places365")
    if net == "robust" and row == "ODIN":
        notes.append(
            "the paper's step is about 4 times what it says: divided by std once where no division "
            "belongs, as its images are not normalised"
        )
    if net == "robust" and place == "table2":
        notes.append("the paper's network returns probabilities, which are softmaxed once more")
    return "; ".join(notes)
