"""ALOE's Table 1 once more: every row attacked through its own score."""

from collections.abc import Iterator, Sequence
from functools import partial

from rood.reproduce.adaptive import judged
from rood.reproduce.aloe_bench import Bench, World, worlds
from rood.reproduce.aloe_tables import LAYERS, METRICS, ORIGINAL, TRAINED, WORST, compared_sides
from rood.reproduce.context import Context
from rood.reproduce.experiment import Part, Row, printed
from rood.threat import Linf

# in this order, so that what is claimed comes first where time runs out
GROUPS = (TRAINED[3], TRAINED[2], TRAINED[1], ORIGINAL, TRAINED[0], LAYERS)


def adaptive(context: Context) -> Iterator[Part]:
    """A part a row."""
    for world in worlds(context, "cifar10", "cifar100", "gtsrb"):
        for group in GROUPS:
            for detector, row in group.rows.items():
                if not _asked(context, world, row):
                    continue
                facts = {"inside": world.name, "method": row, "eps": 1}
                cells = [
                    Row(
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


def _asked(context: Context, world: World, row: str) -> bool:
    """The rows of the paper; of CIFAR-100, where a pass costs as much, what it concludes from."""
    if context.size.name == "tiny":
        return row in ("ALOE+ODIN", "MSP")
    if world.name == "cifar100":
        return row in ("ALOE", "ALOE+ODIN", "MSP")
    return row not in ("ADV+ODIN", "AOE+ODIN")


def _attacked(
    context: Context, world: World, role: str, detector: str, cells: Sequence[Row]
) -> Iterator[Row]:
    bench = Bench(context, world, role)
    judge = bench.mahalanobis() if detector == "mahalanobis" else bench.softmax()[detector]
    forwards, _ = judge.cost()
    # a detector of several passes gets fewer images: the interval says so
    n = max(4, context.size.standard // (1 if forwards == 1 else 2))
    inside = bench.pixels(bench.inside, n)
    each = max(1, n // len(world.outside))
    outside = {name: bench.pixels(name, each) for name in world.outside}
    purpose = (world.name, role, detector)
    clean, found = judged(context, judge, inside, outside, Linf(world.level), purpose)
    yield from compared_sides(cells, "inside", clean, found, bench.network.name)
