"""The numbers that the papers print, as package data."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from rood.errors import InputError


@cache
def figures() -> tuple[dict[str, Any], ...]:
    """Every printed number: paper, place, inside, outside, model, method, eps, metric, value."""
    text = (files("rood_papers.framework") / "papers.json").read_text(encoding="utf-8")
    return tuple(json.loads(text))


def printed(paper: str, place: str, **facts: Any) -> float | None:
    """The one number that has all these facts, as a share; None where the paper has none.

    printed("aloe", "table1", inside="cifar10", method="ALOE", eps=1, metric="auroc"); `eps` is in
    levels of 1/255, and 0 means clean.
    """
    wanted = {"paper": paper, "place": place} | facts
    hits = [f for f in figures() if all(f.get(k) == v for k, v in wanted.items())]
    values = {f["value"] for f in hits}
    if len(values) > 1:
        raise InputError(f"expected facts that name one number, got {len(hits)} for {wanted}")
    return next(iter(values), None)
