"""Experiments on what is shipped alone, whatever data the machine has."""

from pathlib import Path

import pytest

import rood_papers as reproduce
from rood_papers.framework.cells import Cell
from rood_papers.framework.context import SIZES, Context
from rood_papers.framework.run import run


def bare_context(patch: pytest.MonkeyPatch, out: Path) -> Context:
    for name in ("ROOD_DATA", "ROOD_CIFAR10", "ROOD_ZOO"):
        patch.delenv(name, raising=False)
    return Context(SIZES["tiny"], out=out)


def rows_of(name: str, out: Path) -> list[Cell]:
    with pytest.MonkeyPatch.context() as patch:
        return list(run(reproduce.chosen([name]), bare_context(patch, out)))
