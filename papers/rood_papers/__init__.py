"""The tables and figures of four papers, run on rood, with the printed number beside ours.

One package per paper, each with a tuple `EXPERIMENTS`; README.md says how to add a table.
"""

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rood.registry import unknown

if TYPE_CHECKING:
    from rood_papers.framework.experiment import Experiment

PAPERS = ("aloe", "fort", "liang", "pro")


def experiments(papers: Iterable[str] = PAPERS) -> "dict[str, Experiment]":
    """Every experiment by name, paper after paper."""
    found = [e for p in papers for e in importlib.import_module(f"{__name__}.{p}").EXPERIMENTS]
    return {e.name: e for e in found}


def chosen(names: Iterable[str]) -> "list[Experiment]":
    """Experiments by name; "aloe" means all of that paper."""
    names = list(names)
    papers = [n.partition("/")[0] for n in names]
    for paper in papers:
        if paper not in PAPERS:
            raise unknown("paper", paper, PAPERS)
    known = experiments(p for p in PAPERS if p in papers)
    for name in names:
        if name not in known and name not in PAPERS:
            raise unknown("experiment", name, known)
    return [e for e in known.values() if e.name in names or e.paper in names]
