"""FORT's tables: clean, after the paper's free steps read at 1/255, and after our suite."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rood.analysis.trajectory import auroc_at
from rood.metrics import summary
from rood_papers.fort.systems import (
    AT_NEARER,
    FILE,
    LEVEL,
    NEARER,
    Case,
    arrived,
    case_of,
    ready,
    walk,
    worst,
)
from rood_papers.framework.cells import Cell
from rood_papers.framework.context import Context, NotRun
from rood_papers.framework.experiment import Part
from rood_papers.framework.intervals import difference
from rood_papers.framework.paper import combined, printed


def lines_of(place: str, key: str = "lines") -> Iterator[tuple[Case, dict[str, Any]]]:
    """The systems of an experiment, with what else its lines say."""
    about = FILE["experiments"][place]
    for entry in about[key]:
        for line in combined({**about.get("line", {}), **entry}):
            yield case_of(line), {"name": line["method"]} | line


def lines(place: str, context: Context) -> Iterator[Part]:
    """One part per line; on the shipped digits where the paper's images are missing."""
    about = FILE["experiments"][place]
    otherwise = "otherwise" in about and not _there(context, "cifar100")
    for case, line in lines_of(place, "otherwise" if otherwise else "lines"):
        cells = _cells(place, case, line, about.get("official", False))
        name = f"{line['name']}, {case.column}"
        yield Part(name, tuple(cells.values()), partial(_measured, context, case, cells))


def _there(context: Context, world: str) -> bool:
    about = FILE["worlds"][world]
    network = next(iter(about["networks"].values()))
    return context.has_network(network) and context.has(*about["images"].values())


def _cells(place: str, case: Case, line: Mapping[str, Any], official: bool) -> dict[str, Cell]:
    """The cells of a line by attack; `change` is the paper's attack minus clean."""
    paper = case.world == "cifar100"
    known = lambda **what: _printed(place, case, line, **what) if paper else None
    own = FILE["worlds"][case.world]["note"] if case.roles else ""
    note = "; ".join(n for n in (own, line.get("note", "") if paper else "") if n)
    cell = Cell(f"fort/{place}", line["name"], case.column, "auroc", note=note)
    after = known(eps=1, metric="auroc")
    change = known(eps=1, metric="auroc_change")
    found = {
        "clean": replace(cell, paper=known(eps=0, metric="auroc")),
        "paper": replace(cell, attack="paper", paper=after),
        "official": replace(cell, attack="official", paper=after),
        "standard": replace(cell, attack="standard"),
        "nearer": replace(cell, attack="paper", column=f"{cell.column}{AT_NEARER}"),
        "change": replace(cell, attack="paper", metric="auroc_change", paper=change),
    }
    return found if official else {k: v for k, v in found.items() if k != "official"}


def _printed(place: str, case: Case, line: Mapping[str, Any], **what: Any) -> float | None:
    facts = {"place": place, "inside": "cifar100", "outside": case.outside.partition("/")[0]}
    facts |= {"method": case.method, "model": line.get("network", "ViT-L/16")}
    return printed("fort", **facts | line.get("printed", {}) | what)


def _measured(context: Context, case: Case, cells: Mapping[str, Cell]) -> Iterator[Cell]:
    s = ready(context, case)
    n_in, network = len(s.clean_in), s.network
    signs = {"paper": 0, "official": -1}
    moved = {p: walk(context, case, sign_of_zero=sign) for p, sign in signs.items() if p in cells}
    there = {preset: arrived(way) for preset, way in moved.items()}
    clean = summary(s.clean_in, s.clean_out, resamples=1)["auroc"]
    yield cells["clean"].found(clean, n_in, len(s.clean_out), network=network)
    for preset, way in there.items():
        point = auroc_at(way, s.clean_in, "linf", LEVEL)
        assert point is not None
        n, cell = way.scores.shape[1], cells[preset]
        note = f"{cell.note}; {point.left_box:.0%} of the images had left the pixel box"
        if lost := moved[preset].scores.shape[1] - n:
            note += f"; {lost} never moved by 1/255 and are left out"
        yield cell.found(point.auroc, n_in, n, network=network, note=note)
        if preset == "paper":
            fall = difference(point.auroc, clean)
            yield cells["change"].found(fall, n_in, n, network=network)
            nearer = auroc_at(way, s.clean_in, "linf", NEARER)
            assert nearer is not None
            yield cells["nearer"].found(nearer.auroc, n_in, n, network=network)
    scores = worst(context, case)
    found = summary(s.clean_in, scores, resamples=1)["auroc"]
    yield cells["standard"].found(found, n_in, len(scores), network=network)


def text(place: str, context: Context) -> Iterator[Part]:
    """Human performance, which was not measured here."""
    known = printed("fort", "section-3", metric="auroc")
    cell = Cell(f"fort/{place}", "human benchmark", "cifar10", "auroc", paper=known)

    def make() -> Iterator[Cell]:
        raise NotRun("no people were asked")

    yield Part("people", (cell,), make)
