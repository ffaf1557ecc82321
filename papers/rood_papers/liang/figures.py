"""LIANG's figures: codes beside codes, their errors, scores, losses and the images themselves."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from rood.analysis.dimensions import dimensions
from rood.metrics import wilson
from rood_papers.framework.cells import Cell
from rood_papers.framework.claims import compared
from rood_papers.framework.context import Context, NotRun
from rood_papers.framework.experiment import Experiment, Part
from rood_papers.framework.intervals import histogram
from rood_papers.liang.pictures import gallery
from rood_papers.liang.scores import EXPOSED, GRAM, MAHALANOBIS, odin_name
from rood_papers.liang.systems import Case, matched, ready, scored, test_set

CLOSE = "mape_below_0.001"
SHOWN = 1000  # points of a scatter plot
CURVE = 60  # points of a loss curve
BARS = 30
CIFAR10 = Case("cifar10", ("cifar10/ce",), "MSP", "logits", steps=100)
DIGITS = Case(
    "digits", ("digits/ce",), "MSP", "logits", eps=5.0, steps=100
)  # a third of the pixels
LARGE = Case("imagenet", ("net",), "MSP", "features", "noise", 20.0, 10_000)
SIGNS = Case("gtsrb", ("gtsrb/ce",), "MSP", "features", steps=10_000)
CASES = {  # one of each kind
    "MSP": CIFAR10,
    "ODIN": Case(
        "cifar10", ("cifar10/ce",), odin_name(1000, 0.001), "preprocessed logits", steps=100
    ),
    "Mahalanobis": Case("cifar10", ("cifar10/ce",), MAHALANOBIS.format(0), "score"),
    "outlier exposure": Case("cifar10", ("cifar10/oe",), EXPOSED, "logits", steps=10_000),
    "Gram": Case("cifar10", ("cifar10/ce",), GRAM, "score", steps=100),
    "traffic signs": SIGNS,
    "chest X-ray": replace(LARGE, start="chestxray", eps=5.0),
    "lung CT": replace(LARGE, start="lung-ct", eps=5.0),
    "noise, 224x224": LARGE,
}


def _point(experiment: str, group: str, column: str, metric: str) -> Cell:
    return Cell(
        experiment=experiment,
        row=group,
        column=column,
        metric=metric,
        attack="official",
        kind="point",
        group=group,
    )


# errors of codes


def errors(place: str, cases: dict[str, Case], context: Context) -> Iterator[Part]:
    """How many pairs have which error."""
    for group, case in cases.items():
        point = _point(f"liang/{place}", group, "log10 of the MAPE", "share of images")
        cell = replace(point, kind="cell", metric=CLOSE, column=case.start, group="")
        make = partial(_errors, context, case, cell, point)
        yield Part(group, (cell,), make)


def _errors(context: Context, case: Case, cell: Cell, point: Cell) -> Iterator[Cell]:
    found, network = matched(context, case), ready(context, case).network
    n, below = len(found.mape), float((found.mape < 1e-3).mean())
    note = "the paper: most are below 0.1 %"
    yield cell.found(wilson(below, n), n, n, network=network, note=note)
    logs = np.log10(np.clip(found.mape, 1e-9, 1e3))
    for _, x, share in histogram({point.group: logs}, BARS):
        yield point.found(share, x=x, network=network)


def absent(place: str, what: str, metric: str, context: Context) -> Iterator[Part]:
    """A figure whose images are not to be had."""
    cell = Cell(experiment=f"liang/{place}", row=what, column="noise", metric=metric)

    def make() -> Iterator[Cell]:
        raise NotRun("no data")

    yield Part(what, (cell,), make)


# codes, scores, losses, images


def scatter(context: Context) -> Iterator[Part]:
    """Every number of a code beside that of the image it was taken from."""
    for group in ("MSP", "noise, 224x224"):
        cell = _point("liang/scatter", group, "z of the image", "z of the attacked image")
        yield Part(group, (cell,), partial(_scatter, context, CASES[group], cell))


@torch.no_grad()
def _codes(context: Context, case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    s, found = ready(context, case), matched(context, case)
    a, b = (torch.cat([s.encoder(p) for p in x.split(100)]) for x in (found.inside, found.images))
    return a.cpu(), b.cpu()


def _scatter(context: Context, case: Case, cell: Cell) -> Iterator[Cell]:
    wanted, got = (v.flatten() for v in _codes(context, case))
    every = max(1, len(wanted) // SHOWN)
    network = ready(context, case).network
    for x, y in zip(wanted[::every].tolist(), got[::every].tolist(), strict=True):
        yield cell.found(y, x=x, network=network, note="dots")


def histograms(context: Context) -> Iterator[Part]:
    """Scores of images, of starts, and of what was made of them."""
    for group, case in CASES.items():
        cell = _point("liang/histograms", group, f"score of {group}", "share of images")
        yield Part(group, (cell,), partial(_histogram, context, case, cell))


def _histogram(context: Context, case: Case, cell: Cell) -> Iterator[Cell]:
    s = ready(context, case)
    after = scored(s.detector, matched(context, case).images)
    sides = {"in-distribution": s.clean_in, "start": s.clean_out, "attacked": after}
    for name, x, share in histogram(sides, BARS):
        yield cell.found(share, group=name, x=x, network=s.network)


def losses(context: Context) -> Iterator[Part]:
    """The distance of codes, step by step."""
    for group, case in CASES.items():
        cell = _point("liang/losses", group, "step", "log10 of the median loss")
        yield Part(group, (cell,), partial(_losses, context, case, cell))


def _losses(context: Context, case: Case, cell: Cell) -> Iterator[Cell]:
    loss = matched(context, case).losses.double().median(dim=1).values
    network = ready(context, case).network
    for i in np.unique(np.linspace(0, len(loss) - 1, CURVE).astype(int)):
        yield cell.found(float(loss[i].clamp_min(1e-30).log10()), x=float(i), network=network)


def galleries(context: Context) -> Iterator[Part]:
    """Images, starts, and starts with the codes of the images."""
    for group, case in CASES.items():
        cell = Cell(
            experiment="liang/galleries",
            row=group,
            column="images; starts; starts with the codes of the images",
            metric="picture",
            attack="official",
            kind="image",
        )
        yield Part(group, (cell,), partial(_gallery, context, case, cell))


def _gallery(context: Context, case: Case, cell: Cell) -> Iterator[Cell]:
    s, found = ready(context, case), matched(context, case)
    file = gallery(context.out, cell.row, (found.inside, s.starts, found.images))
    yield replace(cell, file=file, network=s.network, n_out=len(s.starts))


# what a network forgets


def forgotten(context: Context) -> Iterator[Part]:
    """How many directions in the pixels a code does not see."""
    for case in (CIFAR10, DIGITS):
        cells = tuple(
            Cell(experiment="liang/dimensions", row=case.world, column=code, metric="null_space")
            for code in ("features", "logits")
        )
        yield Part(case.world, cells, partial(_forgotten, context, case, cells))


def _forgotten(context: Context, case: Case, cells: tuple[Cell, ...]) -> Iterator[Cell]:
    network = context.network(case.roles[0])
    x = context.pixels(test_set(context, case.world), shape=network.shape, limit=1)
    found = dimensions(network.model, x)
    for cell, code in zip(cells, found.codes, strict=True):
        note = f"of {found.input} pixels; the code has {code.size} numbers"
        yield cell.found(float(min(code.null_space)), len(x), network=network.name, note=note)


def _most_are_close(experiment: str, rows: Sequence[Cell]) -> Iterator[Cell]:
    """What the paper says of its histograms."""
    of = {r.column: r.ours for r in rows if r.metric == CLOSE}
    text = "most codes end within 0.1 % of those asked for"
    yield compared(experiment, text, of, lambda *shares: all(v > 0.5 for v in shares))


_WHY = (
    "EfficientNet-lite0 and WRN-16-1 in place of the paper's networks, 1,000 of 10,000 steps; "
    "steps as long as the authors' stop shrinking the error at one per cent or so"
)
_224 = "EfficientNet-lite0 and the ImageNet sample"
_BOTH = f"cifar10-ce, cifar10-oe, gtsrb-ce; {_224}"
_STARTS = {k: CASES[k] for k in ("chest X-ray", "lung CT", "noise, 224x224")}


def _histogram_of(place: str, what: str, needs: str, cases: dict[str, Case]) -> Experiment:
    name = f"liang/{place}"
    told = partial(_most_are_close, name)
    return Experiment(name, what, needs, partial(errors, place, cases), told, why=_WHY)


FIGURES = (
    _histogram_of("figure3", "errors of the codes", _224, _STARTS),
    _histogram_of(
        "figure4",
        "the same, further from noise",
        _224,
        {"noise, 224x224": replace(LARGE, eps=30.0)},
    ),
    Experiment(
        "liang/figure8", "OCT", "images not to be had", partial(absent, "figure8", "OCT", CLOSE)
    ),
    Experiment(
        "liang/figure9",
        "COVID-CT",
        "images not to be had",
        partial(absent, "figure9", "COVID-CT", CLOSE),
    ),
    _histogram_of(
        "figure11", "errors for traffic signs", "gtsrb-ce and its images", {"traffic signs": SIGNS}
    ),
    Experiment("liang/scatter", "codes beside codes", _BOTH, scatter),
    Experiment("liang/histograms", "scores before and after", _BOTH, histograms),
    Experiment("liang/losses", "loss curves", _BOTH, losses),
    Experiment("liang/galleries", "the images", _BOTH, galleries),
    Experiment("liang/dimensions", "what codes forget", "cifar10-ce, digits-ce", forgotten),
)
