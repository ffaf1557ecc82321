"""ALOE's tables and its figure: how well attacked images are detected, flagged and classified."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from rood.metrics import Interval, summary, wilson
from rood.shapes import Images, Scores
from rood.threat import Linf
from rood_papers.aloe.bench import LayersBench, SoftmaxBench, train_for, worlds
from rood_papers.framework.bench import DIGITS, Bench, World, judged
from rood_papers.framework.cells import Cell
from rood_papers.framework.context import Context, in_batches
from rood_papers.framework.experiment import Part
from rood_papers.framework.intervals import BARS, BEYOND, averaged, histogram
from rood_papers.framework.paper import printed, read

NOTES = read("aloe")["notes"]
METRICS = ("auroc", "fpr95_in", "detection_error")
WORST = "worst_detection_error"  # equation 2: each image at its worse, clean or attacked
BY_SET = "{} / {}"  # the column of one OOD set, which the paper does not print
EVERY_SECOND = "every second image"  # those that detectors of several passes are judged on
PANELS = (  # of Figure 2: title, role, detector, attacked
    ("OE, clean", "oe", "msp", False),
    ("OE, attacked", "oe", "msp", True),
    ("ALOE, attacked", "aloe", "msp", True),
    ("ALOE+ODIN, attacked", "aloe", "odin", True),
)


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

    def bench(self, context: Context, world: World) -> SoftmaxBench:
        """The network with the detectors that judge."""
        return (LayersBench if self.layers else SoftmaxBench)(context, world, self.role)


ORIGINAL = Group("ce", {"msp": "MSP", "odin": "ODIN"})
LAYERS = Group("ce", {"mahalanobis": "Mahalanobis"}, layers=True)
TRAINED = tuple(
    Group(name.lower(), {"msp": name, "odin": f"{name}+ODIN"})
    for name in ("OE", "ADV", "AOE", "ALOE")
)
_CIFAR = ("cifar10", "cifar100")
# in this order, so that what is claimed comes first where time runs out
ADAPTIVE = (TRAINED[3], TRAINED[2], TRAINED[1], ORIGINAL, TRAINED[0], LAYERS)
THEIRS = (  # networks of other papers with ALOE's architecture
    Group("odin-densenet", {"msp": "MSP, ODIN's net", "odin": "ODIN, ODIN's net"}, only=_CIFAR),
    Group("odin-densenet", {"mahalanobis": "Mahalanobis, ODIN's net"}, layers=True, only=_CIFAR),
    Group("oecc-densenet", {"msp": "OE, OECC's net", "odin": "OE+ODIN, OECC's net"}, only=_CIFAR),
)


def in_adaptive(context: Context, world: World, row: str) -> bool:
    """Whether `aloe/adaptive` has this row of Table 1.

    Attacks through ODIN are most expensive on CIFAR-100: only ALOE+ODIN is attacked there.
    """
    if context.size.tiny:
        return row in ("ALOE+ODIN", "MSP")
    if world.name == "cifar100" and row in ("ODIN", "OE+ODIN"):
        return False
    every = [r for g in ADAPTIVE for r in g.rows.values()]
    return row in every and row not in ("ADV+ODIN", "AOE+ODIN")


def table1(place: str, context: Context) -> Iterator[Part]:
    """Clean, and attacked at 1/255 as written and as coded."""
    for world in worlds(context, "cifar10", "cifar100", "gtsrb"):
        for group in (ORIGINAL, LAYERS, *TRAINED, *THEIRS):
            if world.name in group.only:
                # other papers' networks are slow: attacked as written only
                presets = ("paper",) if group in THEIRS else ("paper", "official")
                for preset in ("clean", *presets):
                    yield detected(context, place, world, group, preset, 1)


def table3(place: str, context: Context) -> Iterator[Part]:
    """Larger budgets; robust networks count where they were trained for that budget."""
    for world in worlds(context, "cifar10", "gtsrb"):
        for levels in (4,) if context.size.tiny else (2, 3, 4):
            retrained = [replace(g, role=f"{g.role}-{levels}") for g in TRAINED[1:]]
            as_is = tuple(map(_as_is, TRAINED[1:]))
            for group in (ORIGINAL, LAYERS, TRAINED[0], *retrained, *as_is):
                for preset in ("paper",) if group in as_is else ("paper", "official"):
                    part = detected(context, place, world, group, preset, levels)
                    yield _trained_for(context, world, group, levels, part)


def _trained_for(context: Context, world: World, group: Group, levels: int, part: Part) -> Part:
    """The same part, after its network was trained for the budget where it has to be."""
    method, _, budget = group.role.rpartition("-")
    if budget != str(levels) or world is DIGITS:
        return part

    def make() -> Iterable[Cell]:
        train_for(context, world, method, levels)
        return part.make()

    return replace(part, make=make)


def _as_is(group: Group) -> Group:
    return replace(group, rows={d: f"{r}, trained for 1/255" for d, r in group.rows.items()})


def detected(
    context: Context, place: str, world: World, group: Group, preset: str, levels: int
) -> Part:
    """One network's images against each OOD set, and the mean over the sets."""
    first = place == "table1"
    column = world.name if first else f"{world.name}, {levels}/255"
    metrics = METRICS if preset == "clean" else (*METRICS, WORST)
    cells = [
        Cell(
            experiment=f"aloe/{place}",
            row=row,
            column=column,
            metric=metric,
            attack=preset,
            paper=_printed(place, world.name, row, 0 if preset == "clean" else levels, metric),
            note=_note(
                world, group, preset, levels, detector, first and in_adaptive(context, world, row)
            ),
        )
        for detector, row in group.rows.items()
        for metric in metrics
    ]
    name = f"{column}/{group.name}/{'as-is/' if 'trained' in cells[0].row else ''}{preset}"
    return Part(name, cells, partial(_detected, context, world, group, preset, levels, cells))


def _detected(
    context: Context, world: World, group: Group, preset: str, levels: int, cells: Sequence[Cell]
) -> Iterator[Cell]:
    bench = group.bench(context, world)
    found = clean = bench.scores()
    if preset != "clean":
        found = bench.scores_of({n: bench.attacked(n, preset, levels) for n in clean})
    for detector, row in group.rows.items():
        mine = [c for c in cells if c.row == row]
        pick = lambda of, d=detector: {n: s[d] for n, s in of.items()}
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


def table2(place: str, context: Context) -> Iterator[Part]:
    """In-distribution images that were attacked to be misclassified, as if they were OOD."""
    for world in worlds(context, "cifar100", "cifar10"):
        tiny = context.size.tiny  # where fitting layers of CIFAR's networks takes minutes
        for group in (ORIGINAL, *TRAINED) if tiny else (ORIGINAL, LAYERS, *TRAINED):
            for preset in ("paper", "official"):
                cells = [
                    Cell(
                        experiment=f"aloe/{place}",
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
    bench = group.bench(context, world)
    clean = bench.scores()[bench.inside]
    misled = SoftmaxBench(context, world, group.role).misled(preset)
    found = context.scores(bench.detectors(), misled)
    for cell, detector in zip(cells, group.rows, strict=True):
        s_in, s_out = clean[detector], found[detector]
        missed = summary(s_in, s_out)["fpr95_in"]
        flagged = Interval(1 - missed.value, 1 - missed.high, 1 - missed.low)
        yield cell.found(flagged, len(s_in), len(s_out), network=bench.network.name)


def table4(place: str, context: Context) -> Iterator[Part]:
    """How many classes are right, before and after the attack on the classifier."""
    nets = {"Original": "ce", "OE": "oe", "ADV": "adv", "AOE": "aoe", "ALOE": "aloe"}
    for world in worlds(context, "cifar10", "cifar100", "gtsrb"):
        for row, role in nets.items():
            for preset in ("clean", "paper", "official"):
                metric = "accuracy" if preset == "clean" else "robust_accuracy"
                facts = {"inside": world.name, "method": row, "metric": metric}
                known = printed("aloe", "table4", **facts)
                of = f"aloe/{place}", row, world.name, metric
                cell = Cell(*of, attack=preset, paper=known)
                make = partial(_right, context, world, role, preset, cell)
                yield Part(f"{world.name}/{role}/{preset}", (cell,), make)


def _right(context: Context, world: World, role: str, preset: str, cell: Cell) -> Iterator[Cell]:
    bench = SoftmaxBench(context, world, role)
    right = _correct(bench, bench.pixels(bench.inside))
    if preset != "clean":
        right &= _correct(bench, bench.misled(preset))
    share, n = right.double().mean().item(), len(right)
    yield cell.found(wilson(share, n), n, network=bench.network.name)


@torch.no_grad()
def _correct(bench: Bench, x: Images) -> torch.Tensor:
    return in_batches(lambda b: bench.model(b).logits.argmax(dim=1), x) == bench.labels()


def adaptive(place: str, context: Context) -> Iterator[Part]:
    """Rows of Table 1 once more, each attacked through its own score."""
    for world in worlds(context, "cifar10", "cifar100", "gtsrb"):
        for group in ADAPTIVE:
            for detector, row in group.rows.items():
                if not in_adaptive(context, world, row):
                    continue
                facts = {"inside": world.name, "method": row, "eps": 1}
                cells = [
                    Cell(
                        experiment=f"aloe/{place}",
                        row=row,
                        column=world.name,
                        metric=metric,
                        attack="standard",
                        paper=printed("aloe", "table1", metric=metric, **facts),
                        note=NOTES["weaker_attack"],
                    )
                    for metric in (*METRICS, WORST)
                ]
                make = partial(_through_itself, context, world, group, detector, cells)
                yield Part(f"{world.name}/{row}", cells, make)


def _through_itself(
    context: Context, world: World, group: Group, detector: str, cells: Sequence[Cell]
) -> Iterator[Cell]:
    bench = group.bench(context, world)
    judge, network = bench.detectors()[detector], bench.network.name
    forwards, _ = judge.cost()
    inside, outside = sides(bench, fewer=forwards > 1)
    purpose = (world.name, group.role, detector)
    clean, found = judged(context, judge, inside, outside, Linf(world.level), purpose)
    yield from compared_sides(cells, "inside", clean, found, network)
    if forwards == 1:
        column = BY_SET.format(world.name, EVERY_SECOND)
        auroc = next(c for c in cells if c.metric == "auroc")
        cell = replace(auroc, column=column, paper=None, note="")
        mean, *_ = compared_sides([cell], "inside", _halved(clean), _halved(found), network)
        yield mean


def sides(bench: Bench, *, fewer: bool) -> tuple[Images, dict[str, Images]]:
    """ID images and those of each OOD set; fewer: every second of them.

    A detector that takes several forward passes gets fewer images, hence a wider interval.
    """
    n, step = bench.context.size.standard, 2 if fewer else 1
    each = max(1, n // len(bench.world.outside))
    outside = {name: bench.pixels(name, each)[::step] for name in bench.world.outside}
    return bench.pixels(bench.inside, n)[::step], outside


def _halved(by_set: Mapping[str, Scores]) -> dict[str, Scores]:
    return {name: s[::2] for name, s in by_set.items()}


def figure2(place: str, context: Context) -> Iterator[Part]:
    """A histogram of each side in each panel."""
    for world in worlds(context, "cifar10"):
        for title, role, detector, attacked in PANELS:
            attack = "paper" if attacked else "clean"
            of = f"aloe/{place}", title, "score, higher is more OOD", "share of images"
            cell = Cell(*of, kind="point", attack=attack)
            make = partial(_panel, context, world, role, detector, cell)
            yield Part(f"{world.name}/{title}", (cell,), make)


def _panel(context: Context, world: World, role: str, detector: str, cell: Cell) -> Iterator[Cell]:
    bench = SoftmaxBench(context, world, role)
    found = {}
    for name in (bench.inside, world.outside[0]):
        x = bench.pixels(name) if cell.attack == "clean" else bench.attacked(name, "paper")
        found[name] = context.scores({detector: bench.detectors()[detector]}, x)[detector]
    for name, middle, share in histogram(found, BARS, BEYOND):
        n = {"n_in" if name == bench.inside else "n_out": len(found[name])}
        yield cell.found(share, group=name, x=middle, network=bench.network.name, **n)


def _printed(place: str, world: str, row: str, eps: int, metric: str) -> float | None:
    method = row.partition(",")[0] if "net" in row else row
    where = place if eps else "table1"
    return printed("aloe", where, inside=world, method=method, eps=eps, metric=metric)


def _note(
    world: World,
    group: Group,
    preset: str,
    levels: int,
    detector: str,
    again: bool,  # in aloe/adaptive, through the whole score
) -> str:
    """The conditions of the paper's number, where they differ from its text."""
    if world is DIGITS:
        return str(NOTES["digits"])
    coded, attacked = preset == "official", preset in ("paper", "official")
    see = NOTES["see_adaptive"] if again else ""
    notes = {
        NOTES["oecc"]: group.role == "oecc-densenet",
        NOTES["no_start"]: coded and levels == 1,
        NOTES["no_fourth_level"]: coded and levels == 4,
        NOTES["dead_gradient"]: coded and group.layers,
        NOTES["blind_to_odin"] + see: attacked and detector == "odin",
        NOTES["blind_to_step"] + see: attacked and group.layers,
    }
    return "; ".join(text for text, applies in notes.items() if applies)
