"""Fort, *Adversarial vulnerability of powerful near out-of-distribution detection*, 2022.

Free sign steps on the OOD images, read at 1/255 (`rood.analysis.trajectory`), and beside them our
suite within 1/255: no trajectory is projected, so that a projected attack finds more.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from rood.analysis.trajectory import auroc_at
from rood.metrics import summary
from rood_papers.fort.claims import of_table1, of_table3, of_table4, of_table5
from rood_papers.fort.figures import FIGURES
from rood_papers.fort.systems import (
    AT_NEARER,
    CLIP,
    DIGITS,
    DISTANCES,
    LARGE,
    LEVEL,
    METHODS,
    NEARER,
    NETWORKS,
    PAIR,
    STAND_IN,
    TURNED,
    WHY,
    System,
    World,
    arrived,
    ready,
    walk,
    worst,
)
from rood_papers.framework.cells import Cell
from rood_papers.framework.context import Context, NotRun
from rood_papers.framework.experiment import Experiment, Part
from rood_papers.framework.intervals import difference
from rood_papers.framework.paper import printed

NOTES = {"digits": "the shipped digits", "cifar100": STAND_IN, "cifar10": "turned round"}
NO_NUMBER = {"model": "ours"}  # other images and classes: none of the paper's belongs beside them


@dataclass(frozen=True)
class Line:
    """A line of a table: four numbers of one system."""

    name: str
    system: System
    printed: Callable[..., float | None]  # by eps and metric
    note: str = ""


def _line(place: str, method: str, world: World, name: str = "", **facts: object) -> Line:
    outside = world.outside.partition("/")[0]
    known = {"model": "ViT-L/16", "outside": outside} | facts
    look = partial(printed, "fort", place, inside="cifar100", method=method, **known)
    return Line(name or method, System(method, world), look, _slip(place, method, name))


def _slip(place: str, method: str, name: str) -> str:
    """What is odd about the paper's own number."""
    if place == "table1" and method == "Mahalanobis":
        return "the paper's section 3 gives its 97.98 to an ensemble"
    if place == "table3" and name == f"{DISTANCES[1]}, ensemble":
        return "the paper prints -9.05 for 78.64 - 97.69 = -19.05"
    if place == "table4":
        return "the paper's figure 11 has 32 images, its table repeats the numbers of 128"
    return "the paper prints only below 10 %" if place == "table2" else ""


def _cells(experiment: str, line: Line, official: bool) -> dict[str, Cell]:
    """What is filled for a line, by the attack; `change` is the paper's attack less clean."""
    world = line.system.world
    inside = world.inside.partition("/")[0]
    own = NOTES[inside] if world.networks else ""
    cell = Cell(
        experiment=experiment,
        row=line.name,
        column=world.column,
        metric="auroc",
        note="; ".join(n for n in (own, line.note if inside == "cifar100" else "") if n),
    )
    clean, attacked = (line.printed(eps=eps, metric="auroc") for eps in (0, 1))
    change = line.printed(eps=1, metric="auroc_change")
    found = {
        "clean": replace(cell, paper=clean),
        "paper": replace(cell, attack="paper", paper=attacked),
        "official": replace(cell, attack="official", paper=attacked),
        "standard": replace(cell, attack="standard"),
        "nearer": replace(cell, attack="paper", column=f"{cell.column}{AT_NEARER}"),
        "change": replace(cell, attack="paper", metric="auroc_change", paper=change),
    }
    return found if official else {k: v for k, v in found.items() if k != "official"}


def _measured(context: Context, line: Line, cells: dict[str, Cell]) -> Iterator[Cell]:
    s = ready(context, line.system)
    n_in, network = len(s.clean_in), s.network
    signs = {"paper": 0, "official": -1}
    moved = {
        p: walk(context, line.system, sign_of_zero=sign) for p, sign in signs.items() if p in cells
    }
    there = {preset: arrived(way) for preset, way in moved.items()}
    clean = summary(s.clean_in, s.clean_out, resamples=1)["auroc"]
    yield cells["clean"].found(clean, n_in, len(s.clean_out), network=network)
    for preset, way in there.items():
        point = auroc_at(way, s.clean_in, "linf", LEVEL)
        assert point is not None
        n, cell = way.scores.shape[1], cells[preset]
        note = f"{cell.note}; {point.left_box:.0%} of the images had left the pixel box"
        if lost := moved[preset].scores.shape[1] - n:
            note += f"; {lost} never moved by 1/255 and are left out"
        yield cell.found(point.auroc, n_in, n, network=network, note=note)
        if preset == "paper":
            fall = difference(point.auroc, clean)
            yield cells["change"].found(fall, n_in, n, network=network)
            nearer = auroc_at(way, s.clean_in, "linf", NEARER)
            assert nearer is not None
            yield cells["nearer"].found(nearer.auroc, n_in, n, network=network)
    scores = worst(context, line.system)
    found = summary(s.clean_in, scores, resamples=1)["auroc"]
    yield cells["standard"].found(found, n_in, len(scores), network=network)


def _parts(
    experiment: str, lines: Iterable[Line], context: Context, *, official: bool = False
) -> Iterator[Part]:
    for line in lines:
        cells = _cells(experiment, line, official)
        name = f"{line.name}, {line.system.world.column}"
        yield Part(name, tuple(cells.values()), partial(_measured, context, line, cells))


def table1(context: Context) -> Iterator[Part]:
    """Three scores of one network."""
    world = World()
    try:
        context.network(world.networks[0])
        here = context.has(world.fit, world.inside, world.outside)
    except NotRun:
        here = False
    worlds = {world: {}, TURNED: NO_NUMBER} if here else {DIGITS: NO_NUMBER}
    lines = [_line("table1", m, w, **facts) for w, facts in worlds.items() for m in METHODS]
    return _parts("fort/table1", lines, context, official=True)


def table2(context: Context) -> Iterator[Part]:
    """Words instead of a fitted score."""
    line = _line("table2", CLIP, World(networks=()), model="CLIP")
    return _parts("fort/table2", [line], context)


def table3(context: Context) -> Iterator[Part]:
    """Two networks and the mean of their scores."""
    lines = [
        _line("table3", method, World(networks=roles), f"{method}, {model}", model=model)
        for method in DISTANCES
        for model, roles in NETWORKS.items()
    ]
    turned = [
        _line("table3", method, replace(TURNED, networks=roles), f"{method}, {name}", **NO_NUMBER)
        for method in DISTANCES
        for name, roles in PAIR.items()
    ]
    return _parts("fort/table3", [*lines, *turned], context)


def table4(context: Context) -> Iterator[Part]:
    """An attacker of the small image beside one of the enlarged one."""
    sides = ((True, "32x32", 32), (False, "network's size", 384))
    lines = [
        _line("table4", method, World(small=small), f"{method}, {side}", resolution=printed_side)
        for method in DISTANCES
        for small, side, printed_side in sides
    ]
    turned = [
        _line("table4", method, replace(LARGE, small=small), f"{method}, {side}", **NO_NUMBER)
        for method in DISTANCES
        for small, side, _ in sides
    ]
    return _parts("fort/table4", [*lines, *turned], context)


def table5(context: Context) -> Iterator[Part]:
    """Far OOD images; near ones again, for the comparison."""
    far = [_line("table5", m, World(outside="svhn")) for m in DISTANCES]
    near = [_line("table1", m, World()) for m in DISTANCES]
    turned = [
        _line("table5", m, replace(TURNED, outside=outside), **NO_NUMBER)
        for m in DISTANCES
        for outside in ("svhn", TURNED.outside)
    ]
    return _parts("fort/table5", [*far, *near, *turned], context)


def text(context: Context) -> Iterator[Part]:
    """What people reach; nobody was asked here."""
    known = printed("fort", "section-3", metric="auroc")
    cell = Cell(
        experiment="fort/text", row="human benchmark", column="cifar10", metric="auroc", paper=known
    )

    def make() -> Iterator[Cell]:
        raise NotRun("no people were asked")

    yield Part("people", (cell,), make)


_VIT = "cifar100-vit; CIFAR-100 and CIFAR-10"
EXPERIMENTS = (
    Experiment(
        "fort/table1",
        "MSP, Mahalanobis and its relative form when OOD images move by 1/255",
        f"{_VIT}; or the shipped digits",
        table1,
        of_table1,
        why=WHY,
        on_digits=True,
    ),
    Experiment("fort/table2", "CLIP's class names under attack", "--model clip=...", table2),
    Experiment(
        "fort/table3",
        "the mean of two networks",
        f"cifar100-resnet18 and {_VIT}",
        table3,
        of_table3,
        why=WHY,
    ),
    Experiment(
        "fort/table4",
        "attackers of few and of many pixels",
        f"{_VIT}; cifar10-large, of the recipe of that name",
        table4,
        of_table4,
        why=WHY,
    ),
    Experiment("fort/table5", "far OOD", f"{_VIT}, SVHN", table5, of_table5, why=WHY),
    Experiment("fort/text", "what people reach", "people", text),
    *FIGURES,
)
