"""LIANG's figures and text: codes and their errors, scores, losses, images, presets, accuracies."""

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from rood.analysis.dimensions import dimensions
from rood.attacks import Attack, FeatureMatch
from rood.evaluation.store import Store
from rood.metrics import wilson
from rood.shapes import Images
from rood_papers.framework.cells import Cell, point
from rood_papers.framework.context import Context, NotRun
from rood_papers.framework.experiment import Part
from rood_papers.framework.intervals import histogram
from rood_papers.framework.paper import printed
from rood_papers.liang.claims import MOST
from rood_papers.liang.systems import (
    FILE,
    Case,
    case_of,
    code_error,
    direct,
    matched,
    ready,
    scored,
    test_set,
)

SHOWN = 1000  # points of a scatter plot
CURVE = 60  # points of a loss curve
BARS = 30
COLUMNS = 8  # of a gallery
GAP = 2  # pixels of white between its images
CIFAR10 = Case("cifar10", ("cifar10/ce",), "MSP", "logits", steps=100)
DIGITS = Case("digits", ("digits/ce",), "MSP", "logits", eps=5.0, steps=100)


def cases_of(place: str, context: Context) -> Iterator[tuple[str, Case]]:
    """The attacks that a figure shows, by name; all of them where it names none."""
    about = FILE["experiments"][place]
    own = {"eps": about["eps"]} if "eps" in about else {}
    for name in about.get("cases", FILE["cases"]):
        yield name, case_of(context, FILE["cases"][name] | own)


def _point(place: str, group: str, column: str, metric: str) -> Cell:
    return point(f"liang/{place}", group, column, metric, "official")


def absent(place: str, context: Context) -> Iterator[Part]:
    """Cells whose images are not to be had."""

    def make() -> Iterator[Cell]:
        raise NotRun("no data")

    for what, metric in FILE["experiments"][place]["absent"].items():
        cell = Cell(f"liang/{place}", what, "noise", metric)
        yield Part(what, (cell,), make)


# codes, scores, losses, images


def errors(place: str, context: Context) -> Iterator[Part]:
    """Histogram of the errors of the codes."""
    for group, case in cases_of(place, context):
        bar = _point(place, group, "log10 of the MAPE", "share of images")
        cell = replace(bar, kind="cell", metric=MOST, column=case.start, group="")
        yield Part(group, (cell,), partial(_errors, context, case, cell, bar))


def _errors(context: Context, case: Case, cell: Cell, bar: Cell) -> Iterator[Cell]:
    found, network = matched(context, case), ready(context, case).network
    n, below = len(found.mape), float((found.mape < 1e-3).mean())
    note = "the paper: most are below 0.1 %"
    yield cell.found(wilson(below, n), n, n, network=network, note=note)
    logs = np.log10(np.clip(found.mape, 1e-9, 1e3))
    for _, x, share in histogram({bar.group: logs}, BARS):
        yield bar.found(share, x=x, network=network)


def scatter(place: str, context: Context) -> Iterator[Part]:
    """Every number of a code beside that of the image it was taken from."""
    for group, case in cases_of(place, context):
        cell = _point(place, group, "z of the image", "z of the attacked image")
        yield Part(group, (cell,), partial(_scatter, context, case, cell))


@torch.no_grad()
def _scatter(context: Context, case: Case, cell: Cell) -> Iterator[Cell]:
    s, found = ready(context, case), matched(context, case)
    code = lambda x: torch.cat([s.encoder(part) for part in x.split(100)]).cpu().flatten()
    wanted, got = code(found.inside), code(found.images)
    every = max(1, len(wanted) // SHOWN)
    for x, y in zip(wanted[::every].tolist(), got[::every].tolist(), strict=True):
        yield cell.found(y, x=x, network=s.network, note="dots")


def histograms(place: str, context: Context) -> Iterator[Part]:
    """Scores of images, of starts, and of attacked starts."""
    for group, case in cases_of(place, context):
        cell = _point(place, group, f"score of {group}", "share of images")
        yield Part(group, (cell,), partial(_histogram, context, case, cell))


def _histogram(context: Context, case: Case, cell: Cell) -> Iterator[Cell]:
    s = ready(context, case)
    after = scored(s.detector, matched(context, case).images)
    sides = {"in-distribution": s.clean_in, "start": s.clean_out, "attacked": after}
    for name, x, share in histogram(sides, BARS):
        yield cell.found(share, group=name, x=x, network=s.network)


def losses(place: str, context: Context) -> Iterator[Part]:
    """The distance of codes, step by step."""
    for group, case in cases_of(place, context):
        cell = _point(place, group, "step", "log10 of the median loss")
        yield Part(group, (cell,), partial(_losses, context, case, cell))


def _losses(context: Context, case: Case, cell: Cell) -> Iterator[Cell]:
    loss = matched(context, case).losses.double().median(dim=1).values
    network = ready(context, case).network
    for i in np.unique(np.linspace(0, len(loss) - 1, CURVE).astype(int)):
        yield cell.found(float(loss[i].clamp_min(1e-30).log10()), x=float(i), network=network)


def galleries(place: str, context: Context) -> Iterator[Part]:
    """Images, starts, and starts with the codes of the images."""
    for group, case in cases_of(place, context):
        about = "images; starts; starts with the codes of the images"
        cell = replace(_point(place, group, about, "picture"), kind="image", group="")
        yield Part(group, (cell,), partial(_gallery, context, case, cell))


def _gallery(context: Context, case: Case, cell: Cell) -> Iterator[Cell]:
    s, found = ready(context, case), matched(context, case)
    shown = [x[:COLUMNS] for x in (found.inside, s.outside, found.images)]
    file = picture(context.out, cell.row, shown)
    yield replace(cell, file=file, network=s.network, n_out=len(s.outside))


def picture(out: Path, name: str, rows: Sequence[Images], gap: int = GAP) -> str:
    """Write rows of images as one picture; its path within `out`."""
    sides = ((0, gap), (0, gap), (0, 0))
    tile = lambda image: np.pad(_pixels(image), sides, constant_values=255)
    lines = [np.concatenate([tile(image) for image in row], axis=1) for row in rows]
    file = Path("pictures") / f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}.png"
    buffer = io.BytesIO()
    mode = "L" if rows[0].shape[1] == 1 else "RGB"
    Image.fromarray(np.concatenate(lines)).convert(mode).save(buffer, format="PNG", optimize=True)
    Store(out).write_file(str(file), buffer.getvalue())
    return file.as_posix()


def _pixels(image: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """(c, h, w) in [0, 1] to (h, w, 3)."""
    return (255 * image.detach().cpu().expand(3, -1, -1)).round().byte().permute(1, 2, 0).numpy()


# null spaces


def forgotten(place: str, context: Context) -> Iterator[Part]:
    """The dimension of the null space: directions that do not change an image's code."""
    for case in (CIFAR10, DIGITS):
        codes = ("features", "logits")
        cells = tuple(Cell(f"liang/{place}", case.world, code, "null_space") for code in codes)
        yield Part(case.world, cells, partial(_forgotten, context, case, cells))


def _forgotten(context: Context, case: Case, cells: tuple[Cell, ...]) -> Iterator[Cell]:
    network = context.network(case.roles[0])
    x = context.pixels(test_set(context, case.world), shape=network.shape, limit=1)
    found = dimensions(network.model, x)
    for cell, code in zip(cells, found.codes, strict=True):
        note = f"of {found.input} pixels; the code has {code.size} numbers"
        yield cell.found(float(min(code.null_space)), len(x), network=network.name, note=note)


# presets of the attack


def presets(place: str, context: Context) -> Iterator[Part]:
    """Three rules for one attack."""
    there = context.has_network("cifar10/ce") and context.has("cifar10/test")
    case = CIFAR10 if there else DIGITS
    n = 20 if context.size.name == "tiny" and there else 200
    rules = {
        "paper": FeatureMatch.paper(steps=n),
        "official": FeatureMatch.liang(steps=n),
        "shrinking": FeatureMatch(steps=n),
        "standard": None,
    }
    for attack, rule in rules.items():
        cell = Cell(f"liang/{place}", "MSP", case.world, "auroc", attack=attack)
        cells = (cell, replace(cell, metric="mape_median")) if rule else (cell,)
        yield Part(attack, cells, partial(_preset, context, case, cells, rule))


def _preset(
    context: Context, case: Case, cells: tuple[Cell, ...], rule: Attack | None
) -> Iterator[Cell]:
    s = ready(context, case)
    found = None if rule is None else matched(context, case, rule)
    after = direct(context, case) if found is None else scored(s.detector, found.images)
    auroc, m = s.ranked(after, paired=found is not None)
    yield cells[0].found(auroc, len(s.clean_in), m, network=s.network)
    if found is not None:
        yield code_error(found, cells[1], s.network)


# numbers in the text


def text(place: str, context: Context) -> Iterator[Part]:
    """How good the networks are."""
    for fact in FILE["experiments"][place]["accuracies"]:
        world, _, role = fact["network"].partition("/")
        known = printed("liang", fact["place"], metric="accuracy")
        cell = Cell(f"liang/{place}", role, world, "accuracy", paper=known, note=fact["note"])
        make = partial(_accuracy, context, fact["network"], f"{world}/test", cell)
        yield Part(fact["place"], (cell,), make)
    yield from absent(place, context)


@torch.no_grad()
def _accuracy(context: Context, role: str, name: str, cell: Cell) -> Iterator[Cell]:
    network = context.network(role)
    images = context.images(name, shape=network.shape)
    right = sum(
        int((network.model(x).logits.argmax(dim=1) == y).sum())
        for x, y in images.batches(250, context.device)
    )
    yield cell.found(wilson(right / len(images), len(images)), len(images), network=network.name)
