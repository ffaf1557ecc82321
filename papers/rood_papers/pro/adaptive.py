"""PRO attacked through PRO: what its steps are worth when the attacker takes them too."""

from collections.abc import Iterator, Sequence
from functools import partial

from rood.detectors.base import Detector
from rood.detectors.entropy import Entropy
from rood.detectors.pro import PRO
from rood.metrics import summary
from rood.shapes import Scores
from rood.threat import Linf
from rood_papers.framework.adaptive import judged
from rood_papers.framework.cells import Cell
from rood_papers.framework.context import Context
from rood_papers.framework.experiment import Part
from rood_papers.framework.intervals import gain
from rood_papers.pro.bench import CIFAR10, DIGITS, Bench, World, world_of
from rood_papers.pro.tables import GAIN

ATTACKS = ("clean", "standard")
_NOTES = {
    "Entropy": "",
    "PRO-ENT": "one step of 2.5e-4 in pixels",
}
_LESS = {
    "clean": "less Entropy, of the same images",
    "standard": "less Entropy, of the same images, each attacked through itself",
}


def adaptive(context: Context) -> Iterator[Part]:
    """The base and PRO on near OOD, clean and with both sides attacked at 1/255."""
    tiny = context.size.name == "tiny"  # hundreds of passes an image: the digits' net alone
    world = DIGITS if tiny else world_of(context, CIFAR10)
    for net in list(world.roles)[:1] if tiny else world.roles:
        cells = [
            Cell(
                experiment="pro/adaptive",
                row=row,
                column=net,
                metric=metric,
                attack=attack,
                note="; ".join(filter(None, (note, _LESS[attack] if metric == GAIN else ""))),
            )
            for row, note in _NOTES.items()
            for attack in ATTACKS
            for metric in (("auroc", GAIN) if row == "PRO-ENT" else ("auroc",))
        ]
        make = partial(_attacked, context, world, net, cells)
        yield Part(f"{world.name}/{net}", cells, make)


def _attacked(context: Context, world: World, net: str, cells: Sequence[Cell]) -> Iterator[Cell]:
    bench = Bench(context, world, world.roles[net])
    base = Entropy(bench.model)
    detectors: dict[str, Detector] = {"Entropy": base, "PRO-ENT": PRO(base, eps=2.5e-4, steps=1)}
    n = max(4, context.size.standard // 2)
    inside, outside = bench.pixels(bench.inside)[:n], bench.pixels(world.near[0])[:n]
    threat = Linf(0.1 if world is DIGITS else 1 / 255)
    found: dict[tuple[str, str], tuple[Scores, Scores]] = {}
    for row, detector in detectors.items():
        purpose = (world.name, net, row)
        sides = judged(context, detector, inside, {"near": outside}, threat, purpose)
        found |= {(row, a): (s["inside"], s["near"]) for a, s in zip(ATTACKS, sides, strict=True)}
    for cell in cells:
        own, plain = found[cell.row, cell.attack], found["Entropy", cell.attack]
        value = gain(*own, *plain) if cell.metric == GAIN else summary(*own)["auroc"]
        yield cell.found(value, len(inside), len(outside), network=bench.network.name)
