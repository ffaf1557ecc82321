"""Experiments as data: `<paper>/<paper>.toml` says what each is, what it needs, what its rows are.

[texts]
small = "a smaller network"               # quoted by `why` as {small}

[experiments.table5]
what = "outlier exposure"
needs = "svhn-oe, cifar10-oe and their images"
why = "{small}, trained on fewer images"  # why our numbers may differ
parts = "lines"                           # the paper's functions that measure
claims = "tables"                         # and test, by name
lines = [{ score = "OE", world = ["svhn", "cifar10"], network = "{world}/oe" }]
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.resources import files
from itertools import product
from typing import Any

from rood_papers.framework.experiment import Context, Experiment, Part, Row, no_claims

Parts = Callable[[str, Context], Iterator[Part]]  # of a place such as "table5"
Claims = Callable[[str, Sequence[Row]], Iterator[Row]]  # of an experiment such as "liang/table5"


def read(paper: str) -> dict[str, Any]:
    """The file of a paper."""
    text = (files(f"rood_papers.{paper}") / f"{paper}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


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
    paper: str, known: Mapping[str, Any], parts: Mapping[str, Parts], claims: Mapping[str, Claims]
) -> tuple[Experiment, ...]:
    """The experiments of a file, in its order, with the paper's functions by name."""

    def one(place: str, about: Mapping[str, Any]) -> Experiment:
        name = f"{paper}/{place}"
        tested = partial(claims[about["claims"]], name) if "claims" in about else no_claims
        return Experiment(
            name,
            about["what"],
            about["needs"],
            partial(parts[about["parts"]], place),
            tested,
            why=about.get("why", "").format(**known.get("texts", {})),
            on_digits=about.get("on_digits", False),
        )

    return tuple(one(place, about) for place, about in known["experiments"].items())
