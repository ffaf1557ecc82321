"""ALOE's tables: how well attacked images are told apart, flagged and classified."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from rood.metrics import Interval, summary, wilson
from rood.shapes import Images
from rood_papers.aloe.bench import DIGITS, Bench, World, worlds
from rood_papers.aloe.retrained import ready
from rood_papers.framework.cells import Cell
from rood_papers.framework.context import BATCH, Context
from rood_papers.framework.experiment import Part
from rood_papers.framework.intervals import averaged
from rood_papers.framework.paper import printed

METRICS = ("auroc", "fpr95_in", "detection_error")
WORST = "worst_detection_error"  # equation 2: each image at its worse, clean or attacked
BY_SET = "{} / {}"  # the column of one OOD set, which the paper does not print


@dataclass(frozen=True)
class Group:
    """Rows that judge the same attacked images of one network."""

    role: str
    rows: Mapping[str, str]  # detector -> the name of the row
    layers: bool = False  # attacked by Algorithm 2 instead of 1
    only: tuple[str, ...] = ("gtsrb", "cifar10", "cifar100", "digits")

    @property
    def name(self) -> str:
        return f"{self.role}/layers" if self.layers else self.role


ORIGINAL = Group("ce", {"msp": "MSP", "odin": "ODIN"})
LAYERS = Group("ce", {"mahalanobis": "Mahalanobis"}, layers=True)
TRAINED = tuple(
    Group(name.lower(), {"msp": name, "odin": f"{name}+ODIN"})
    for name in ("OE", "ADV", "AOE", "ALOE")
)
_CIFAR = ("cifar10", "cifar100")
THEIRS = (  # networks of other papers with ALOE's architecture
    Group("odin-densenet", {"msp": "MSP, ODIN's net", "odin": "ODIN, ODIN's net"}, only=_CIFAR),
    Group("odin-densenet", {"mahalanobis": "Mahalanobis, ODIN's net"}, layers=True, only=_CIFAR),
    Group("oecc-densenet", {"msp": "OE, OECC's net", "odin": "OE+ODIN, OECC's net"}, only=_CIFAR),
)


def in_adaptive(context: Context, world: World, row: str) -> bool:
    """Whether `aloe/adaptive` has this row of Table 1.

    Through ODIN a hundred classes cost most: of CIFAR-100 ALOE+ODIN alone, which the paper ends on.
    """
    if context.size.name == "tiny":
        return row in ("ALOE+ODIN", "MSP")
    if world.name == "cifar100" and row in ("ODIN", "OE+ODIN"):
        return False
    every = [r for g in (ORIGINAL, LAYERS, *TRAINED) for r in g.rows.values()]
    return row in every and row not in ("ADV+ODIN", "AOE+ODIN")


def table1(context: Context) -> Iterator[Part]:
    """Clean, and attacked at 1/255 as written and as coded."""
    for world in worlds(context, "cifar10", "cifar100", "gtsrb"):
        for group in (ORIGINAL, LAYERS, *TRAINED, *THEIRS):
            if world.name in group.only:
                # the networks of others are slow: as the paper's text has it, and no more
                presets = ("paper",) if group in THEIRS else ("paper", "official")
                for preset in ("clean", *presets):
                    yield told_apart(context, "aloe/table1", world, group, preset, 1)


def table3(context: Context) -> Iterator[Part]:
    """Larger budgets; robust networks count where they were trained for that budget."""
    for world in worlds(context, "cifar10", "gtsrb"):
        for levels in (4,) if context.size.name == "tiny" else (2, 3, 4):
            retrained = [replace(g, role=f"{g.role}-{levels}") for g in TRAINED[1:]]
            as_is = tuple(map(_as_is, TRAINED[1:]))
            for group in (ORIGINAL, LAYERS, TRAINED[0], *retrained, *as_is):
                for preset in ("paper",) if group in as_is else ("paper", "official"):
                    part = told_apart(context, "aloe/table3", world, group, preset, levels)
                    yield _trained_for(context, world, group, levels, part)


def _trained_for(context: Context, world: World, group: Group, levels: int, part: Part) -> Part:
    """The same part, after its network was trained for the budget where it has to be."""
    method, _, budget = group.role.rpartition("-")
    if budget != str(levels) or world is DIGITS:
        return part

    def make() -> Iterable[Cell]:
        ready(context, world, method, levels)
        return part.make()

    return replace(part, make=make)


def _as_is(group: Group) -> Group:
    return replace(group, rows={d: f"{r}, trained for 1/255" for d, r in group.rows.items()})


def told_apart(
    context: Context, experiment: str, world: World, group: Group, preset: str, levels: int
) -> Part:
    """One network's images against each OOD set, and the mean over the sets."""
    eps = 0 if preset == "clean" else levels
    column = world.name if experiment == "aloe/table1" else f"{world.name}, {levels}/255"
    metrics = METRICS if preset == "clean" else (*METRICS, WORST)
    again = lambda row: experiment == "aloe/table1" and in_adaptive(context, world, row)
    cells = [
        Cell(
            experiment=experiment,
            row=row,
            column=column,
            metric=metric,
            attack=preset,
            paper=_printed(experiment, world.name, row, eps, metric),
            note=_note(world, group, preset, levels, detector, again(row)),
        )
        for detector, row in group.rows.items()
        for metric in metrics
    ]
    name = f"{column}/{group.name}/{'as-is/' if 'trained' in cells[0].row else ''}{preset}"
    make = partial(_told_apart, context, world, group, preset, levels, cells)
    return Part(name, cells, make)


def _told_apart(
    context: Context,
    world: World,
    group: Group,
    preset: str,
    levels: int,
    cells: Sequence[Cell],
) -> Iterator[Cell]:
    bench = Bench(context, world, group.role)
    names = (bench.inside, *world.outside)
    found = clean = bench.clean_scores(group.layers)
    if preset != "clean":
        sets = {n: bench.attacked(n, preset, levels, layers=group.layers) for n in names}
        found = bench.scores(bench.judges(group.layers), sets)
    for detector, row in group.rows.items():
        mine = [c for c in cells if c.row == row]
        pick = lambda of, d=detector: {n: of[n][d] for n in names}
        yield from compared_sides(mine, bench.inside, pick(clean), pick(found), bench.network.name)


def compared_sides(
    cells: Sequence[Cell],
    inside: str,
    clean: Mapping[str, torch.Tensor],
    found: Mapping[str, torch.Tensor],
    network: str,
) -> Iterator[Cell]:
    """Each cell with the mean over all OOD sets; AUROC also of each set by itself."""
    s_in, s_worst = found[inside], torch.maximum(found[inside], clean[inside])
    sets: dict[str, dict[str, Interval]] = {}
    for name in found:
        if name != inside:
            worst = torch.minimum(found[name], clean[name])
            sets[name] = summary(s_in, found[name])
            sets[name][WORST] = summary(s_worst, worst)["detection_error"]
    n_out = sum(len(found[n]) for n in sets)
    for cell in cells:
        interval = averaged([s[cell.metric] for s in sets.values()])
        yield cell.found(interval, len(s_in), n_out, network=network)
        for name, s in sets.items() if cell.metric == "auroc" else ():
            alone = replace(cell, column=BY_SET.format(cell.column, name), paper=None, note="")
            yield alone.found(s["auroc"], len(s_in), len(found[name]), network=network)


def table2(context: Context) -> Iterator[Part]:
    """In-distribution images that were attacked to be misclassified, as if they were OOD."""
    for world in worlds(context, "cifar100", "cifar10"):
        tiny = context.size.name == "tiny"  # where fitting layers of CIFAR's networks takes minutes
        for group in (ORIGINAL, *TRAINED) if tiny else (ORIGINAL, LAYERS, *TRAINED):
            for preset in ("paper", "official"):
                cells = [
                    Cell(
                        experiment="aloe/table2",
                        row=row,
                        column=world.name,
                        metric="flagged",
                        attack=preset,
                        paper=printed("aloe", "table2", inside=world.name, method=row),
                    )
                    for row in group.rows.values()
                ]
                make = partial(_flagged, context, world, group, preset, cells)
                yield Part(f"{world.name}/{group.name}/{preset}", cells, make)


def _flagged(
    context: Context, world: World, group: Group, preset: str, cells: Sequence[Cell]
) -> Iterator[Cell]:
    bench = Bench(context, world, group.role)
    clean = bench.clean_scores(group.layers)[bench.inside]
    found = context.scores(bench.judges(group.layers), bench.misled(preset))
    for cell, detector in zip(cells, group.rows, strict=True):
        s_in, s_out = clean[detector], found[detector]
        missed = summary(s_in, s_out)["fpr95_in"]
        flagged = Interval(1 - missed.value, 1 - missed.high, 1 - missed.low)
        yield cell.found(flagged, len(s_in), len(s_out), network=bench.network.name)


def table4(context: Context) -> Iterator[Part]:
    """How many classes are right, before and after the attack on the classifier."""
    nets = {"Original": "ce", "OE": "oe", "ADV": "adv", "AOE": "aoe", "ALOE": "aloe"}
    for world in worlds(context, "cifar10", "cifar100", "gtsrb"):
        for row, role in nets.items():
            for preset in ("clean", "paper", "official"):
                metric = "accuracy" if preset == "clean" else "robust_accuracy"
                facts = {"inside": world.name, "method": row, "metric": metric}
                cell = Cell(
                    experiment="aloe/table4",
                    row=row,
                    column=world.name,
                    metric=metric,
                    attack=preset,
                    paper=printed("aloe", "table4", **facts),
                )
                make = partial(_right, context, world, role, preset, cell)
                yield Part(f"{world.name}/{role}/{preset}", (cell,), make)


def _right(context: Context, world: World, role: str, preset: str, cell: Cell) -> Iterator[Cell]:
    bench = Bench(context, world, role)
    x = bench.pixels(bench.inside)
    right = _correct(bench, x)
    if preset != "clean":
        right &= _correct(bench, bench.misled(preset))
    share, n = right.double().mean().item(), len(right)
    yield cell.found(wilson(share, n), n, network=bench.network.name)


@torch.no_grad()
def _correct(bench: Bench, x: Images) -> torch.Tensor:
    classes = [bench.model(b).logits.argmax(dim=1) for b in x.split(BATCH)]
    return torch.cat(classes) == bench.labels()


def _printed(experiment: str, world: str, row: str, eps: int, metric: str) -> float | None:
    place = experiment.partition("/")[2] if eps != 0 else "table1"
    method = row.partition(",")[0] if "net" in row else row
    return printed("aloe", place, inside=world, method=method, eps=eps, metric=metric)


def _note(
    world: World,
    group: Group,
    preset: str,
    levels: int,
    detector: str,
    again: bool,  # in aloe/adaptive, through the whole score
) -> str:
    """What the paper's number rests on, where that is not what its text says."""
    if world is DIGITS:
        return "MNIST digits stand in, attacked at 0.1 for each 1/255 of the paper"
    notes = []
    see = ": see aloe/adaptive" if again else ""
    if group.role == "oecc-densenet":
        notes.append("trained with OECC's loss, not OE's")
    if preset == "official" and levels == 1:
        notes.append("as coded the random start is cut to none")
    if preset == "official" and levels == 4:
        notes.append("as coded most pixels never get beyond 3/255")
    if preset == "official" and group.layers:
        notes.append("as coded the gradient of confident images is 0 or NaN")
    if preset in ("paper", "official") and detector == "odin":
        notes.append(f"the attack does not see ODIN{see}")
    if preset in ("paper", "official") and group.layers:
        notes.append(f"the attack does not see the preprocessing{see}")
    return "; ".join(notes)
