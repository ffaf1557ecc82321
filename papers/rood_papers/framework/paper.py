"""A paper as data: `<paper>/printed.json` has its numbers, `<paper>/<paper>.toml` our words.

[texts]
small = "a smaller network"               # quoted by `why` and `needs` as {small}

[experiments.table5]
what = "outlier exposure"
needs = "svhn-oe, cifar10-oe and their images"
why = "{small}, trained on fewer images"  # why our numbers may differ
parts = "lines"                           # the paper's functions that measure and test, by name;
claims = "tables"                         # parts: the place where it is left out
on_digits = true                          # falls back to the shipped digits: it always runs
lines = [{ world = ["svhn", "cifar10"], network = "{world}/oe" }]    # see `combined`
"""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from itertools import product
from typing import TYPE_CHECKING, Any

from rood.errors import InputError
from rood_papers.framework.cells import Cell
from rood_papers.framework.experiment import Experiment, Part, no_claims

if TYPE_CHECKING:
    from rood_papers.framework.context import Context

Parts = Callable[[str, "Context"], Iterator[Part]]  # of a place such as "table5"
Claims = Callable[[str, Sequence[Cell]], Iterator[Cell]]  # of an experiment such as "liang/table5"


@cache
def read(paper: str) -> dict[str, Any]:
    """The words of a paper."""
    return tomllib.loads(_text(paper, f"{paper}.toml"))


def combined(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One line per combination of the entry's lists, the last list fastest.

    {key} in a text is replaced by the line's value of that key; a key stands before its use.
    """
    lists = {key: value for key, value in entry.items() if isinstance(value, list)}
    for values in product(*lists.values()):
        line = {**entry, **dict(zip(lists, values, strict=True))}
        for key, value in line.items():
            if isinstance(value, str):
                line[key] = value.format(**line)
        yield line


def experiments(
    paper: str, parts: Mapping[str, Parts], claims: Mapping[str, Claims]
) -> tuple[Experiment, ...]:
    """The experiments of a paper in the order of its file, with its functions by name."""
    known = read(paper)
    texts = known.get("texts", {})

    def one(place: str, about: Mapping[str, Any]) -> Experiment:
        name = f"{paper}/{place}"
        return Experiment(
            name,
            about["what"],
            about["needs"].format(**texts),
            partial(parts[about.get("parts", place)], place),
            partial(claims[about["claims"]], name) if "claims" in about else no_claims,
            why=about.get("why", "").format(**texts),
            on_digits=about.get("on_digits", False),
        )

    return tuple(one(place, about) for place, about in known["experiments"].items())


@cache
def figures(paper: str) -> tuple[dict[str, Any], ...]:
    """Every printed number: place, inside, outside, model, method, eps, metric, value."""
    return tuple(json.loads(_text(paper, "printed.json")))


def printed(paper: str, place: str, **facts: Any) -> float | None:
    """The one printed number with all these facts, as a share; None where the paper has none.

    printed("aloe", "table1", inside="cifar10", method="ALOE", eps=1, metric="auroc"); `eps` is in
    units of 1/255, and 0 means clean.
    """
    wanted = {"place": place} | facts
    hits = [f for f in figures(paper) if wanted.items() <= f.items()]
    values = {f["value"] for f in hits}
    if len(values) > 1:
        raise InputError(f"expected facts that name one number, got {len(hits)} for {wanted}")
    return next(iter(values), None)


def _text(paper: str, name: str) -> str:
    return (files("rood_papers") / paper / name).read_text(encoding="utf-8")
