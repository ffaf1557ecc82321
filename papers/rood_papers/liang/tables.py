"""LIANG's tables: each line before the attack, after the authors' as coded, and after ours."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from rood.analysis.matching import Matched, match
from rood.attacks.feature_match import FeatureMatch
from rood.metrics import Interval, wilson
from rood.shapes import Scores
from rood.threat import L2
from rood_papers.framework.cells import LOSS, Cell
from rood_papers.framework.context import Context
from rood_papers.framework.experiment import Part
from rood_papers.framework.intervals import median
from rood_papers.framework.paper import combined, printed
from rood_papers.liang.systems import (
    FILE,
    Case,
    case_of,
    code_error,
    direct,
    matched,
    ready,
    scored,
    stuck,
)

CELLS = "clean official mape fall standard"
SHARED = 0.02  # of the ID images with one score: what is worth a note
LAST = 0.2  # the share of steps in which a flat curve falls no more
CURVE = 26  # points of a loss curve: every twenty-fifth part of the way
CLOSE = 0.01  # what counts as found, as a share of what was asked for


@dataclass(frozen=True)
class Line:
    """A line of a table: its attack, and the cells it fills."""

    case: Case
    part: str
    cells: Mapping[str, Cell]


def lines_of(place: str, context: Context) -> Iterator[Line]:
    """The lines of a table."""
    about = FILE["experiments"][place]
    for entry in about["lines"]:
        for line in combined({**about.get("line", {}), **entry}):
            yield _line(place, case_of(context, line), line)


def _line(place: str, case: Case, line: Mapping[str, Any]) -> Line:
    facts = {"place": place, "inside": case.world, "outside": case.start, "method": case.score}
    facts |= {"model": line["model"]} if "model" in line else {}
    look = partial(printed, "liang", **facts | line.get("printed", {}))
    column = f"{case.world} from {case.start}, {case.code} within {case.eps:g}"
    row, note = line.get("name", case.score), line.get("note", "another network")
    cell = Cell(f"liang/{place}", row, line.get("column", column), "auroc", note=note)
    known = look(target=case.code, metric="auroc")
    every = {
        "bits": replace(cell, metric="bits_per_dim", paper=look(metric="bits_per_dim")),
        "clean": cell,
        "official": replace(cell, attack="official", paper=known),
        "mape": replace(cell, attack="official", metric="mape_median"),
        "fall": replace(cell, attack="official", metric="last_fall"),
        "standard": replace(cell, attack="standard"),
    }
    cells = {name: every[name] for name in line.get("cells", CELLS).split()}
    return Line(case, line.get("part", f"{cell.row}, {cell.column}"), cells)


def lines(place: str, context: Context) -> Iterator[Part]:
    """One part per line."""
    for line in lines_of(place, context):
        yield Part(line.part, tuple(line.cells.values()), partial(measured, context, line))


def measured(context: Context, line: Line) -> Iterator[Cell]:
    """The cells of a line; with the fall of its loss also the loss curve."""
    case, cells, s = line.case, line.cells, ready(context, line.case)
    n, network = len(s.clean_in), s.network
    clean, m = s.ranked(s.clean_out)
    if "bits" in cells:
        bits = s.clean_out.double().mean().item()
        yield cells["bits"].found(bits, n_out=1 if s.alike else n, network=network)
    yield cells["clean"].found(clean, n, m, network=network)
    found = matched(context, case)
    after, m = s.ranked(scored(s.detector, found.images), paired=True)
    complete = "fall" in cells
    steps = f"{len(found.losses)} steps, the paper {case.steps}" if complete else ""
    yield _noted(cells["official"], steps).found(after, n, m, network=network)
    if "mape" in cells:
        yield code_error(found, cells["mape"], network)
    if complete:
        yield cells["fall"].found(last_fall(found), n, m, network=network)
        # two lines may differ in their worlds
        cell = cells["official"]
        yield from loss_curve(found, cell, f"{cell.row}, {cell.column.partition(',')[0]}")
    if "standard" in cells:
        own, m = s.ranked(direct(context, case))
        flat = stuck(context, case) if complete else 0.0
        notes = [f"no slope at {flat:.0%} of the starts" if flat else "", lowest(s.clean_in)]
        notes = notes if complete else [beaten(after.value, own.value)]
        yield _noted(cells["standard"], *notes).found(own, n, m, network=network)


def _noted(cell: Cell, *notes: str) -> Cell:
    return replace(cell, note="; ".join(filter(None, (cell.note, *notes))))


def lowest(inside: Scores) -> str:
    """A note where many images share a score that no attack can go below."""
    least = (inside == inside.min()).double().mean().item()
    if least <= SHARED:
        return ""
    return f"the lowest score is that of {least:.0%} inside: nothing can go below it"


def beaten(matching: float, suite: float) -> str:
    """A note where our suite, which has one start, found less than matching did."""
    return "matching went lower: no bound" if suite > matching else ""


def last_fall(found: Matched) -> Interval:
    """Decrease of an image's loss in the last fifth of the steps, relative to its first value."""
    loss = found.losses.double()
    start = int(len(loss) * (1 - LAST))
    falls = (loss[start - 1] - loss[start:].mean(dim=0)) / loss[0].clamp_min(1e-30)
    return median(falls.cpu().numpy())


def loss_curve(found: Matched, cell: Cell, name: str) -> Iterator[Cell]:
    """The loss of the median image along the way, as a share of what each began with."""
    shares = found.losses.double() / found.losses[0].double().clamp_min(1e-30)
    middle = shares.median(dim=1).values
    point = replace(cell, row=name, group=name, column="step", metric=LOSS, kind="point")
    point = replace(point, paper=None, note="")
    for i in np.unique(np.linspace(0, len(middle) - 1, CURVE).round().astype(int)):
        yield point.found(float(middle[i]), x=float(i))


# likelihoods that are asked for


def targets(place: str, context: Context) -> Iterator[Part]:
    """Target likelihoods, and those that a spiral reaches."""
    (line,) = lines_of(place, context)
    cell = replace(line.cells["official"], column=line.case.start, metric="met", note="")
    point = replace(
        cell,
        column="bits per dimension asked for",
        metric="bits per dimension found",
        kind="point",
        group=line.case.start,
    )
    yield Part(cell.column, (point, cell), partial(_asked, context, line.case, point, cell))


def _asked(context: Context, case: Case, point: Cell, share: Cell) -> Iterator[Cell]:
    s = ready(context, case)
    low, high = s.clean_in.min().item(), s.clean_in.max().item()
    room = (high - low) / 2
    wanted = torch.linspace(low - room, high + room, len(s.outside)).to(s.outside)
    attack = FeatureMatch.liang(steps=30 if context.size.name == "tiny" else case.steps)
    goal = match(s.encoder, wanted[:, None])
    found = attack(goal, s.outside, L2(case.eps), context.generator("liang", "targets"))
    pairs = list(zip(wanted.tolist(), scored(s.detector, found).tolist(), strict=True))
    for x, y in pairs:
        yield point.found(y, x=x, network=s.network, note="dots")
    yield share.found(met(pairs), len(pairs), 1, network=s.network)


def met(pairs: list[tuple[float, float]]) -> Interval:
    """The share of targets met within one per cent."""
    close = sum(abs(found - asked) <= CLOSE * abs(asked) for asked, found in pairs)
    return wilson(close / len(pairs), len(pairs))
