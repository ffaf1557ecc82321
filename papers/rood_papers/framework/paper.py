"""A paper as data: the numbers it prints (printed.json) and our words beside them (paper.toml).

[experiments.table1]          # Paper("aloe").experiment("table1", table1, claims1)
what = "one line for the list of experiments"
needs = "networks and images without which its cells are not run"
why = ["networks", "outliers"]    # of [why], joined: why our numbers may differ
on_digits = true              # optional: falls back to the shipped digits

[why]
networks = "..."

[notes]                       # Paper("aloe").note("oecc"): beside a single cell
oecc = "trained with OECC's loss, not OE's"
step = "one step of {eps:g} in pixels"    # note("step", eps=0.1)
"""

import json
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from rood.errors import InputError
from rood_papers.framework.cells import Cell
from rood_papers.framework.experiment import Experiment, Part, no_claims

if TYPE_CHECKING:
    from rood_papers.framework.context import Context


class Paper:
    """The words of one paper's folder."""

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def _words(self) -> dict[str, Any]:
        return tomllib.loads(_read(self.name, "paper.toml"))

    def experiment(
        self,
        place: str,
        parts: "Callable[[Context], Iterator[Part]]",
        claims: Callable[[Sequence[Cell]], Iterator[Cell]] = no_claims,
    ) -> Experiment:
        """The table or figure at a place, with its description."""
        words = self._words["experiments"][place]
        return Experiment(
            f"{self.name}/{place}",
            words["what"],
            words["needs"],
            parts,
            claims,
            why="; ".join(self._words["why"][key] for key in words.get("why", ())),
            on_digits=words.get("on_digits", False),
        )

    def note(self, key: str, **facts: object) -> str:
        """A note by its key, with these facts filled in."""
        text: str = self._words["notes"][key]
        return text.format(**facts)

    def notes(self, *keys: str) -> str:
        """Several notes, joined."""
        return "; ".join(self.note(key) for key in keys)


@cache
def figures(paper: str) -> tuple[dict[str, Any], ...]:
    """Every printed number: place, inside, outside, model, method, eps, metric, value."""
    return tuple(json.loads(_read(paper, "printed.json")))


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


def _read(paper: str, name: str) -> str:
    return (files("rood_papers") / paper / name).read_text(encoding="utf-8")
