"""ALOE's Figure 2: where the scores of both sides lie."""

from collections.abc import Iterator
from functools import partial

from rood_papers.aloe.bench import Bench, worlds
from rood_papers.framework.cells import Cell
from rood_papers.framework.context import Context
from rood_papers.framework.experiment import Part
from rood_papers.framework.intervals import histogram

PANELS = (  # title, role, detector, attacked
    ("OE, clean", "oe", "msp", False),
    ("OE, attacked", "oe", "msp", True),
    ("ALOE, attacked", "aloe", "msp", True),
    ("ALOE+ODIN, attacked", "aloe", "odin", True),
)
BARS = 40
BEYOND = 0.005  # of all scores at each end: a few lie very far


def figure2(context: Context) -> Iterator[Part]:
    """A histogram of each side in each panel."""
    for world in worlds(context, "cifar10"):
        for title, role, detector, attacked in PANELS:
            cell = Cell(
                experiment="aloe/figure2",
                row=title,
                column="score, higher is more OOD",
                metric="share of images",
                kind="point",
                attack="paper" if attacked else "clean",
            )
            make = partial(_panel, context, world.name, role, detector, cell)
            yield Part(f"{world.name}/{title}", (cell,), make)


def _panel(context: Context, world: str, role: str, detector: str, cell: Cell) -> Iterator[Cell]:
    bench = Bench(context, next(w for w in worlds(context, "cifar10") if w.name == world), role)
    outside = bench.world.outside[0]
    sides = {}
    for name in (bench.inside, outside):
        x = bench.pixels(name) if cell.attack == "clean" else bench.attacked(name, "paper")
        judges = {detector: bench.softmax()[detector]}
        sides[name] = context.scores(judges, x)[detector]
    for name, middle, share in histogram(sides, BARS, BEYOND):
        n = {"n_in" if name == bench.inside else "n_out": len(sides[name])}
        yield cell.found(share, group=name, x=middle, network=bench.network.name, **n)
