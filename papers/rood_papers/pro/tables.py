"""PRO's tables: every detector on a plain and on a robust network, near and far, and attacked."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from rood.detectors import PRO, Detector, Entropy
from rood.metrics import Interval, summary
from rood.shapes import Scores
from rood.threat import Linf
from rood_papers.framework.bench import DIGITS, World, judged
from rood_papers.framework.cells import Cell
from rood_papers.framework.context import Context
from rood_papers.framework.experiment import Part
from rood_papers.framework.intervals import averaged, gain
from rood_papers.framework.paper import printed
from rood_papers.pro.bench import (
    BASES,
    CIFAR10,
    CIFAR100,
    FILE,
    NOTES,
    PLAIN,
    TunedBench,
    chosen,
    world_of,
)

ATTACKS = ("clean", "standard")  # of pro/adaptive
METRICS = ("auroc", "fpr95_out")
GAIN = "auroc_gain"  # over the base
OVER = {**PLAIN, "ODIN": "MSP"}  # whose gain is asked for, and over which base
ROWS1 = (*FILE["rows"]["table1"], *BASES, PLAIN["PRO-GEN"])
ROWS2 = (*FILE["rows"]["table2"], *BASES)
GROUPS = ("near", "far", "mean")


def table1(place: str, context: Context) -> Iterator[Part]:
    """CIFAR-10; beside the paper's two kinds of network those that were trained against attacks."""
    world = world_of(context, CIFAR10)
    nets = list(world.roles)[:2] if context.size.tiny else list(world.roles)
    yield from _table(context, place, world, ROWS1, nets)


def table2(place: str, context: Context) -> Iterator[Part]:
    """CIFAR-100."""
    nets = ("default",) if context.size.tiny else ("default", "robust")
    yield from _table(context, place, world_of(context, CIFAR100), ROWS2, nets)


def figure4(place: str, context: Context) -> Iterator[Part]:
    """Four scores with and without PRO on every CIFAR-10 network there is."""
    world = world_of(context, CIFAR10)
    rows = (*PLAIN.values(), *PLAIN)
    nets = list(world.roles)[:2] if context.size.tiny else list(world.roles)
    yield from _table(context, place, world, rows, nets, sets=("near", "far"))


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
    bench = TunedBench(context, world, world.roles[net])
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
    bench: TunedBench, scores: Mapping[str, Mapping[str, Scores]], row: str
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


def _settled(bench: TunedBench, cell: Cell) -> str:
    """The note with what validation chose."""
    options = chosen(cell.row, bench.detectors()[cell.row], bench.unit)
    return "; ".join(filter(None, (cell.note, options)))


def _printed(place: str, world: World, net: str, row: str, name: str, metric: str) -> float | None:
    if metric == GAIN:  # over the base as the paper has it, GEN with options of its own
        base = OVER[row].partition(",")[0]
        pair = [_printed(place, world, net, m, name, "auroc") for m in (row, base)]
        return None if pair[0] is None or pair[1] is None else pair[0] - pair[1]
    outside = FILE["sets"].get(name, name)
    facts = {"inside": world.name, "model": net, "method": row, "metric": metric}
    return printed("pro", place, outside=outside, **facts)


def _note(place: str, net: str, row: str, name: str, metric: str) -> str:
    notes = []
    if metric == GAIN:
        notes.append(NOTES["gain"].format(base=OVER[row]))
    if name == "scenes":
        notes.append(NOTES["scenes"])
    if net == "robust" and row == "ODIN":
        notes.append(NOTES["odin_step"])
    if net == "robust" and place == "table2":
        notes.append(NOTES["softmaxed_twice"])
    return "; ".join(notes)


def adaptive(place: str, context: Context) -> Iterator[Part]:
    """The base and PRO on near OOD, clean and with both sides attacked at 1/255."""
    tiny = context.size.tiny  # hundreds of passes per image: the digits' network alone
    world = DIGITS if tiny else world_of(context, CIFAR10)
    for net in list(world.roles)[:1] if tiny else world.roles:
        cells = [
            Cell(
                experiment=f"pro/{place}",
                row=row,
                column=net,
                metric=metric,
                attack=attack,
                note=_adaptive_note(row, attack, metric),
            )
            for row in ("Entropy", "PRO-ENT")
            for attack in ATTACKS
            for metric in (("auroc", GAIN) if row == "PRO-ENT" else ("auroc",))
        ]
        make = partial(_through_itself, context, world, net, cells)
        yield Part(f"{world.name}/{net}", cells, make)


def _through_itself(
    context: Context, world: World, net: str, cells: Sequence[Cell]
) -> Iterator[Cell]:
    bench = TunedBench(context, world, world.roles[net])
    base = Entropy(bench.model)
    detectors: dict[str, Detector] = {"Entropy": base, "PRO-ENT": PRO(base, eps=2.5e-4, steps=1)}
    n = max(4, context.size.standard // 2)
    inside, outside = bench.pixels(bench.inside)[:n], bench.pixels(world.near[0])[:n]
    threat = Linf(world.level)
    found: dict[tuple[str, str], tuple[Scores, Scores]] = {}
    for row, detector in detectors.items():
        purpose = (world.name, net, row)
        sides = judged(context, detector, inside, {"near": outside}, threat, purpose)
        found |= {(row, a): (s["inside"], s["near"]) for a, s in zip(ATTACKS, sides, strict=True)}
    for cell in cells:
        own, plain = found[cell.row, cell.attack], found["Entropy", cell.attack]
        value = gain(*own, *plain) if cell.metric == GAIN else summary(*own)["auroc"]
        yield cell.found(value, len(inside), len(outside), network=bench.network.name)


def _adaptive_note(row: str, attack: str, metric: str) -> str:
    keys = (["adaptive_step"] if row == "PRO-ENT" else []) + (
        [f"less_{attack}"] if metric == GAIN else []
    )
    return "; ".join(NOTES[key] for key in keys)
