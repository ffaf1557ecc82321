"""ALOE's claims, tested on our cells."""

from collections.abc import Iterator, Sequence

from rood.metrics import Interval
from rood_papers.aloe.tables import BY_SET, EVERY_SECOND
from rood_papers.framework.cells import Cell, interval
from rood_papers.framework.claims import compared, noise_of, ordered
from rood_papers.framework.paper import read

TEXT = read("aloe")["claims"]
TRAINED = ("ALOE", "AOE", "ADV")  # the paper's order


def table1(name: str, cells: Sequence[Cell]) -> Iterator[Cell]:
    """Undefended detectors collapse; robust training helps, and so does ODIN on top of it."""
    for world in _worlds(cells):
        at = lambda row, w=world: interval(cells, row=row, column=w, attack="paper", metric="auroc")
        if world != "gtsrb":  # where the paper's stay above 0.7
            undefended = {m: at(m) for m in ("MSP", "ODIN", "Mahalanobis")}
            yield _below_half(name, TEXT["collapse"].format(world), undefended)
        orders = {"order": TRAINED, "above_oe": ("ALOE", "OE"), "odin_adds": ("ALOE+ODIN", "ALOE")}
        for text, methods in orders.items():
            yield ordered(name, TEXT[text].format(world), {m: at(m) for m in methods})


def table2(name: str, cells: Sequence[Cell]) -> Iterator[Cell]:
    """Images attacked to be misclassified are mostly not flagged."""
    for world in _worlds(cells):
        methods = ("MSP", "OE", "ADV", "AOE", "ALOE")
        flagged = {m: interval(cells, row=m, column=world, attack="paper") for m in methods}
        yield _below_half(name, TEXT["not_flagged"].format(world), flagged)


def table3(name: str, cells: Sequence[Cell]) -> Iterator[Cell]:
    """The order of Table 1 at larger budgets."""
    for column in _worlds(cells):
        facts = {"column": column, "attack": "paper", "metric": "auroc"}
        found = {m: interval(cells, row=m, **facts) for m in TRAINED}
        yield ordered(name, TEXT["order"].format(column), found)


def adaptive(name: str, cells: Sequence[Cell]) -> Iterator[Cell]:
    """Whether a gain under the paper's attack survives an adaptive attack."""
    attacked = [c for c in cells if c.attack == "standard" and c.metric == "auroc"]
    for world in _worlds(cells):
        at = lambda row, column=world: interval(attacked, row=row, column=column)
        pair = {
            "ALOE+ODIN": at("ALOE+ODIN"),
            f"ALOE, {EVERY_SECOND}": at("ALOE", BY_SET.format(world, EVERY_SECOND)),
        }
        yield ordered(name, TEXT["odin_still_adds"].format(world), pair)
        yield ordered(name, TEXT["order_stays"].format(world), {m: at(m) for m in TRAINED})


def _worlds(cells: Sequence[Cell]) -> list[str]:
    """The ID sets that the cells are about."""
    columns = (c.column for c in cells if c.kind == "cell" and " / " not in c.column)
    return list(dict.fromkeys(columns))


def _below_half(name: str, text: str, ends: dict[str, Interval | None]) -> Cell:
    """Whether all of these are below one half, wherever each lies in its interval."""
    values = {row: None if i is None else i.value for row, i in ends.items()}
    noise = noise_of(i for i in ends.values() if i is not None)
    return compared(name, text, values, lambda *v: max(v) < 0.5, noise)
