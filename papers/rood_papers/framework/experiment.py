"""What an experiment is, for the file of a paper to define.

A paper is one module of this package (`aloe`, `pro`, ...; helpers `aloe_*`) with a tuple
`EXPERIMENTS`. An experiment is a table or a figure, divided into parts; a part is the smallest
piece of work that is kept when a run is stopped, and makes one or more rows:

    def table1(context: Context) -> Iterator[Part]:
        for method in METHODS:
            cell = Row(experiment="fort/table1", row=method, column="cifar10", metric="auroc",
                       attack="paper", paper=printed("fort", "table1", method=method, eps=1, ...))
            yield Part(method, (cell,), partial(measure, context, cell))

    def measure(context: Context, cell: Row) -> Iterator[Row]:
        net = context.network("cifar100/vit")        # .model on the device, .name, .note
        x_in = context.images("cifar100/test")       # an ImageSet, thinned to the size
        x_out = context.pixels("cifar10/test")       # its pixels on the device, remembered
        ...
        yield cell.found(summary(s_in, s_out)["auroc"], len(s_in), len(s_out), network=net.name)

    EXPERIMENTS = (Experiment("fort/table1", "what it shows", "what it needs", table1, claims),)

`cells` are the rows that the part means to fill: `NotRun`, which `context.network` and
`context.images` raise where something is not to be had, turns each into "not run: why". Parts
are made lazily and must not compute before `make` is called. `claims(rows)` is a pure function of
all rows of the experiment (those of earlier runs too) and is asked last; `interval(rows, row=...,
attack=...)` finds a number with its ends, `ordered(name, text, {"MD": a, "MSP": b})` makes the row
that says whether each is above the next, "not tested" where one is None.

Nothing but `context` reads files or knows the device. `context.size` has the counts: `images` a
side for the papers' attacks, `standard` for our suite, `fit` to learn from, `steps(n)` which cuts
an attack short at tiny. Randomness: `context.generator("what", "for")`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rood_papers.framework.context import Context, Network, NotRun
from rood_papers.framework.papers import printed
from rood_papers.framework.rows import Row, claim, compared, ours
from rood_papers.framework.size import SIZES, Size

__all__ = [
    "SIZES",
    "Context",
    "Experiment",
    "Network",
    "NotRun",
    "Part",
    "Row",
    "Size",
    "claim",
    "compared",
    "ours",
    "printed",
]


@dataclass(frozen=True)
class Part:
    """The smallest piece of work that is kept."""

    name: str  # unlike that of any other part of its experiment
    cells: Sequence[Row]  # what it fills; written as "not run" where `make` raises NotRun
    make: Callable[[], Iterable[Row]]


def no_claims(rows: Sequence[Row]) -> Iterator[Row]:
    """Of an experiment that only shows numbers."""
    return iter(())


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of a paper."""

    name: str  # paper/place: "aloe/table1"
    what: str  # a line for people who choose
    needs: str  # the networks and images without which its cells are "not run"
    parts: Callable[[Context], Iterator[Part]]
    claims: Callable[[Sequence[Row]], Iterator[Row]] = no_claims
    why: str = ""  # why our numbers may differ from the paper's, for all of its rows
    on_digits: bool = False  # its parts fall back to the shipped digits: it always runs

    @property
    def paper(self) -> str:
        return self.name.partition("/")[0]
