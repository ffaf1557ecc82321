"""PRO's figures: how far scores shift, how rough they are, and what steps bring."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from rood.analysis.rectification import landscape
from rood.detectors import GEN, MSP, PRO, Detector
from rood.metrics import Interval, auroc, summary
from rood.shapes import Scores
from rood_papers.framework.bench import World
from rood_papers.framework.cells import Cell
from rood_papers.framework.context import Context
from rood_papers.framework.experiment import Part
from rood_papers.framework.intervals import BARS, BEYOND, gain, histogram
from rood_papers.pro.bench import (
    BASES,
    CIFAR10,
    CIFAR100,
    NOTES,
    UNIT,
    TunedBench,
    as_printed,
    climbs,
    world_of,
)
from rood_papers.pro.tables import ROWS1, by_set

SHIFT = 1e-3  # the step of figures 3 and 7, in pixels on robust networks alone
SHIFTED = "mean shift of the largest probability"
RADIUS = 8 / 255  # of the landscapes
# by the iterate that is kept
TOP = {"best": "best iterate, at its best step", "last": "last iterate, at its best step"}
LEAD = "auroc_lead"  # of the best iterate
SWEEP = (2.5e-5, 1.25e-4, 2.5e-4, 1e-3, 5e-3)
# pro/imagenet: --model net=..., --model net-augmix=...
IMAGENET_NETS = {
    "default": "net",
    "AugMix": "net-augmix",
}  # roles: --model net=..., --model net-augmix=...
IMAGENET_OUTSIDE = ("imagenet/outside", "dtd", "scenes", "svhn")
IMAGENET_UNIT = 0.225  # of normalised input, in pixels: what the paper's steps on ImageNet are in
# what the authors' code settled on
IMAGENET_STEPS = {"PRO-MSP": (1.1e-4, 3), "PRO-GEN": (6.8e-5, 1)}


def figure1(place: str, context: Context) -> Iterator[Part]:
    """Near-OOD on the robust network: AUROC against FPR95, one point per row."""
    world = world_of(context, CIFAR10)
    cells = [Cell(f"pro/{place}", row, "fpr95_out", "auroc", kind="point") for row in ROWS1]
    yield Part(world.name, cells, partial(_scatter, context, world, cells))


def _scatter(context: Context, world: World, cells: list[Cell]) -> Iterator[Cell]:
    bench = TunedBench(context, world, world.roles["robust"])
    scores = bench.scores()
    for cell in cells:
        near = by_set(bench, scores, cell.row)["near"]
        facts = {"x": near["fpr95_out"].value, "group": cell.row}
        n_out = sum(len(bench.pixels(n)) for n in world.near)
        n_in = len(bench.pixels(bench.inside))
        yield cell.found(near["auroc"], n_in, n_out, network=bench.network.name, **facts)


def figure3(place: str, context: Context) -> Iterator[Part]:
    """The shift of MSP after one step on the robust networks, for near-OOD and ID images."""
    world = world_of(context, CIFAR10)
    robust = [n for n in world.roles if n != "default"]
    for net in robust[:: 2 if context.size.tiny else 1]:
        yield _shift_part(context, place, world, net)


def figure7(place: str, context: Context) -> Iterator[Part]:
    """The shift of MSP after one step of 0.001, from ten classes to a hundred."""
    seen = []
    for one in (CIFAR10, CIFAR100):
        world = world_of(context, one)
        if world not in seen:
            yield _shift_part(context, place, world, "default")
        seen.append(world)


def _shift_part(context: Context, place: str, world: World, net: str) -> Part:
    row, note = f"{world.name}, {net}", step_note(UNIT if net == "default" else 1.0)
    cells = [Cell(f"pro/{place}", row, side, SHIFTED, note=note) for side in ("inside", "near")]
    make = partial(_shifts, context, world, net, cells)
    return Part(f"{world.name}/{net}", cells, make)


def _shifts(context: Context, world: World, net: str, cells: list[Cell]) -> Iterator[Cell]:
    bench = TunedBench(context, world, world.roles[net])
    pro = PRO(MSP(bench.model), eps=SHIFT * bench.unit, steps=1)
    sets = {"inside": bench.inside, "near": world.near[0]}
    found = {}
    for cell in cells:
        s = torch.sigmoid(-climbs(pro, bench.pixels(sets[cell.column])).double())
        found[cell.column] = (s - s[0]).abs().amax(dim=0)
        yield cell.found(mean_of(found[cell.column]), len(s[0]), network=bench.network.name)
    for side, x, share in histogram(found, BARS, BEYOND):
        point = replace(cells[0], kind="point", column="shift", metric="share of images", note="")
        yield point.found(share, x=x, group=side, network=bench.network.name)


def step_note(unit: float) -> str:
    """What the step of 0.001 is in pixels, and why it may be less."""
    why = "" if unit == 1 else NOTES["normalised"].format(eps=SHIFT)
    return f"{NOTES['step'].format(eps=SHIFT * unit)}{why}"


def mean_of(values: torch.Tensor) -> Interval:
    """The mean and its 95 % interval by the normal approximation."""
    value = values.double().mean().item()
    half = 1.96 * values.double().std().item() / max(1, len(values)) ** 0.5
    return Interval(value, value - half, value + half)


def figure6(place: str, context: Context) -> Iterator[Part]:
    """Scores around an image along two random directions, and how rough they are."""
    world = world_of(context, CIFAR10)
    for net in ("default", "robust"):
        cells = [
            Cell(f"pro/{place}", f"{score}, {net}", side, "roughness", note=NOTES["roughness"])
            for score in ("MSP", "EBO", "Entropy", "GEN")
            for side in ("inside", "near")
        ]
        yield Part(net, cells, partial(_landscapes, context, world, net, cells))


def _landscapes(context: Context, world: World, net: str, cells: list[Cell]) -> Iterator[Cell]:
    bench = TunedBench(context, world, world.roles[net])
    tiny = context.size.tiny
    n, points = (2, 5) if tiny else (16, 21)
    sets = {"inside": bench.inside, "near": world.near[0]}
    pixels = {side: bench.pixels(name)[:n] for side, name in sets.items()}
    for name, score in as_printed(bench.model).items():
        with torch.no_grad():
            spread = torch.cat([score(x) for x in pixels.values()]).std().item()
        for cell in (c for c in cells if c.row == f"{name}, {net}"):
            draws = context.generator("landscape", cell.column)
            x = pixels[cell.column]
            grid = landscape(score, x, draws, radius=RADIUS, points=points)
            rough = _second(grid.double().cpu()) / max(spread, 1e-12)
            yield cell.found(mean_of(rough), n, network=bench.network.name)
            yield from _grid(cell, grid[0].cpu(), points)


def _second(grid: torch.Tensor) -> torch.Tensor:
    """The mean absolute second difference along both axes, for each image."""
    return (grid.diff(n=2, dim=1).abs().mean((1, 2)) + grid.diff(n=2, dim=2).abs().mean((1, 2))) / 2


def _grid(cell: Cell, grid: torch.Tensor, points: int) -> Iterator[Cell]:
    """The landscape of one image, every other point of it."""
    axis = torch.linspace(-RADIUS, RADIUS, points).tolist()
    point = replace(cell, kind="point", metric="score", note="", column=f"{cell.column}, along u")
    for i in range(0, points, 2):
        for j in range(0, points, 2):
            yield point.found(grid[i, j].item(), x=axis[i], group=f"v = {axis[j]:+.4f}")


def sweep(place: str, context: Context) -> Iterator[Part]:
    """AUROC on near OOD by step and number of steps: the best iterate beside the last."""
    world = world_of(context, CIFAR10)
    tiny = context.size.tiny
    for net in list(world.roles)[: 1 if tiny else 3]:
        for row in list(BASES)[:1] if tiny else list(BASES)[:2]:
            cells = [
                Cell(
                    experiment=f"pro/{place}",
                    row=f"{row}, {net}",
                    column=column,
                    metric=metric,
                    note=NOTES["each_at_its_best" if metric == LEAD else "chosen_on_test"],
                )
                for column, metric in (*((c, "auroc") for c in TOP.values()), ("both", LEAD))
            ]
            yield Part(f"{net}/{row}", cells, partial(_swept, context, world, net, row, cells))


def _swept(context: Context, world: World, net: str, row: str, cells: list[Cell]) -> Iterator[Cell]:
    bench = TunedBench(context, world, world.roles[net])
    steps = context.size.steps(7)
    x_out = bench.pixels(world.near[0])
    x_in = bench.pixels(bench.inside)[: len(x_out)]
    top: dict[str, tuple[float, tuple[Scores, Scores]]] = {}
    point = replace(cells[0], kind="point", column="K", metric="auroc", note="")
    for eps in SWEEP[2:4] if context.size.tiny else SWEEP:
        pro = PRO(BASES[row](bench.model), eps=eps, steps=steps)
        s_in, s_out = climbs(pro, x_in), climbs(pro, x_out)
        for k in range(steps + 1):
            for keep, pick in (("best", lambda s: s.amax(dim=0)), ("last", lambda s: s[-1])):
                sides = pick(s_in[: k + 1]), pick(s_out[: k + 1])
                value = auroc(inside=sides[0], outside=sides[1])
                facts = {"x": float(k), "group": f"eps {eps:g}, {keep}"}
                yield point.found(value, len(x_in), len(x_out), network=bench.network.name, **facts)
                if keep not in top or value > top[keep][0]:
                    top[keep] = value, sides
    best, last = (top[keep][1] for keep in TOP)
    found = {TOP[keep]: summary(*sides)["auroc"] for keep, (_, sides) in top.items()}
    found["both"] = gain(*best, *last)
    for cell in cells:
        yield cell.found(found[cell.column], len(x_in), len(x_out), network=bench.network.name)


def imagenet(place: str, context: Context) -> Iterator[Part]:
    """MSP and GEN with and without PRO, network by network; the shift of MSP."""
    for net, role in IMAGENET_NETS.items():
        for name in IMAGENET_OUTSIDE:
            note = "" if name.startswith("imagenet") else NOTES["enlarged"]
            cells = [
                Cell(f"pro/{place}", row, f"{net} / {name}", "auroc", note=note)
                for row in ("MSP", "PRO-MSP", "GEN", "PRO-GEN")
            ]
            make = partial(_any_network, context, role, name, cells)
            yield Part(f"{net}/{name}", cells, make)
        row, note = f"shift of MSP, {net}", step_note(IMAGENET_UNIT)
        cell = Cell(f"pro/{place}", row, "inside", SHIFTED, note=note)
        yield Part(f"{net}/shift", (cell,), partial(_any_shift, context, role, cell))


def _any_network(context: Context, role: str, name: str, cells: list[Cell]) -> Iterator[Cell]:
    network = context.network(role)
    sides = [_sample(context, network.shape, n) for n in ("imagenet", name)]
    plain = {"MSP": MSP(network.model), "GEN": GEN(network.model, gamma=0.01, top=100)}
    detectors: dict[str, Detector] = dict(plain)
    for row, (eps, steps) in IMAGENET_STEPS.items():
        detectors[row] = PRO(plain[row.removeprefix("PRO-")], eps=eps, steps=steps)
    s_in, s_out = (context.scores(detectors, x) for x in sides)
    for cell in cells:
        value = summary(s_in[cell.row], s_out[cell.row])["auroc"]
        yield cell.found(value, len(sides[0]), len(sides[1]), network=network.name)


def _any_shift(context: Context, role: str, cell: Cell) -> Iterator[Cell]:
    network = context.network(role)
    pro = PRO(MSP(network.model), eps=SHIFT * IMAGENET_UNIT, steps=1)
    s = torch.sigmoid(-climbs(pro, _sample(context, network.shape, "imagenet")).double())
    yield cell.found(mean_of((s - s[0]).abs().amax(dim=0)), s.shape[1], network=network.name)


def _sample(context: Context, shape: tuple[int, int, int], name: str) -> torch.Tensor:
    """At most 250 images per set, the size of the sample of ImageNet; at tiny a handful."""
    limit = 4 if context.size.tiny else 250
    return context.pixels(name, shape=shape, limit=limit)
