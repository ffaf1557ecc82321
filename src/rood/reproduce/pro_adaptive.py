"""PRO attacked through PRO: what its steps are worth when the attacker takes them too."""

from collections.abc import Iterator
from functools import partial

from rood.detectors.base import Detector
from rood.detectors.entropy import Entropy
from rood.detectors.pro import PRO
from rood.metrics import summary
from rood.reproduce.adaptive import judged
from rood.reproduce.context import Context
from rood.reproduce.experiment import Part, Row
from rood.reproduce.pro_bench import CIFAR10, DIGITS, Bench, World, world_of
from rood.threat import Linf

ROWS = ("Entropy", "PRO-ENT")


def adaptive(context: Context) -> Iterator[Part]:
    """The base and PRO on near OOD, clean and with both sides attacked at 1/255."""
    tiny = context.size.name == "tiny"  # hundreds of passes an image: the digits' net alone
    world = DIGITS if tiny else world_of(context, CIFAR10)
    nets = list(world.roles)[:1] if tiny else list(world.roles)
    for net in nets:
        for row in ROWS:
            cells = [
                Row(
                    experiment="pro/adaptive",
                    row=row,
                    column=net,
                    metric="auroc",
                    attack=attack,
                    note="one step of 2.5e-4, as the authors' code settled on for CIFAR-10"
                    if row == "PRO-ENT"
                    else "",
                )
                for attack in ("clean", "standard")
            ]
            make = partial(_attacked, context, world, net, row, cells)
            yield Part(f"{world.name}/{net}/{row}", cells, make)


def _attacked(
    context: Context, world: World, net: str, row: str, cells: list[Row]
) -> Iterator[Row]:
    bench = Bench(context, world, world.roles[net])
    base: Detector = Entropy(bench.model)
    detector = base if row == "Entropy" else PRO(base, eps=2.5e-4, steps=1)
    n = max(4, context.size.standard // 4)
    inside, outside = bench.pixels(bench.inside)[:n], bench.pixels(world.near[0])[:n]
    threat = Linf(0.1 if world is DIGITS else 1 / 255)
    sides = judged(context, detector, inside, {"near": outside}, threat, (world.name, net, row))
    for cell, scores in zip(cells, sides, strict=True):
        value = summary(scores["inside"], scores["near"])["auroc"]
        yield cell.found(value, len(inside), len(outside), network=bench.network.name)
