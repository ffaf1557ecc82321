"""An experiment: a table or figure of a paper, divided into parts.

A paper is a folder of this package with a tuple `EXPERIMENTS` (README.md: how to add one). A part
is the smallest piece of work that is kept when a run is stopped, and makes one or more cells:

    def table1(place: str, context: Context) -> Iterator[Part]:
        for method in METHODS:
            cell = Cell(experiment=f"fort/{place}", row=method, column="cifar10", metric="auroc",
                        attack="paper", paper=printed("fort", place, method=method, eps=1, ...))
            yield Part(method, (cell,), partial(measure, context, cell))

    def measure(context: Context, cell: Cell) -> Iterator[Cell]:
        net = context.network("cifar100/vit")        # .model on the device, .name, .shape
        x_in = context.images("cifar100/test")       # an ImageSet, thinned to the size
        x_out = context.pixels("cifar10/test")       # its pixels on the device, read once
        ...
        yield cell.found(summary(s_in, s_out)["auroc"], len(s_in), len(s_out), network=net.name)

`cells` are those that the part means to fill: `NotRun`, which `context.network` and
`context.images` raise where something is missing, turns each into "not run: why". Parts are made
lazily and must not compute before `make` is called. `claims(cells)` is a pure function of all
cells of the experiment (those of earlier runs too) and is called last.

Nothing but `context` reads files or knows the device. `context.size` has the counts: `images` per
side for the papers' attacks, `standard` for our suite, `fit` to fit detectors on, `steps(n)` which
cuts an attack short at tiny. Randomness: `context.generator("what", "for")`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rood_papers.framework.cells import Cell

if TYPE_CHECKING:  # what a page shows of an experiment needs no torch
    from rood_papers.framework.context import Context


@dataclass(frozen=True)
class Part:
    """The smallest piece of work that is kept."""

    name: str  # unlike that of any other part of its experiment
    cells: Sequence[Cell]  # what it fills; written as "not run" where `make` raises NotRun
    make: Callable[[], Iterable[Cell]]


def no_claims(rows: Sequence[Cell]) -> Iterator[Cell]:
    """An experiment without claims."""
    return iter(())


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of a paper."""

    name: str  # paper/place: "aloe/table1"
    what: str  # one line for the list of experiments
    needs: str  # networks and images without which its cells are "not run"
    parts: "Callable[[Context], Iterator[Part]]"
    claims: Callable[[Sequence[Cell]], Iterator[Cell]] = no_claims
    why: str = ""  # why our numbers may differ from the paper's, for all of its rows
    on_digits: bool = False  # its parts fall back to the shipped digits: it always runs

    @property
    def paper(self) -> str:
        return self.name.partition("/")[0]
