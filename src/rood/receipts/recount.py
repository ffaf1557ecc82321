"""The rows of a receipt, computed again from its scores."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from rood.evaluation.rows import Evidence, Row, accuracy_row, detector_rows
from rood.metrics import share_of
from rood.receipts.entry import Measured
from rood.receipts.receipt import Arrays, Receipt
from rood.threat import parse

Stronger = Mapping[Measured, NDArray[np.float64]]  # scores that replace those of the receipt
CLOSE = 1e-6  # relative: other versions of NumPy round differently
KEY = ("model", "detector", "dataset", "scenario", "side", "metric", "seed")


def recount(receipt: Receipt, stronger: Stronger | None = None) -> Iterator[Row]:
    """Every row that the scores of a receipt give, in the order in which an audit writes them."""
    entry = receipt.entry
    for model, detectors in entry.detectors.items():
        if model in entry.classes:
            yield _accuracy(receipt, model)
        for detector in detectors:
            mine = [m for m in entry.measured if (m.model, m.detector) == (model, detector)]
            yield from detector_rows(
                _evidence(receipt, mine, stronger or {}), model, detector, entry.seed
            )


def _accuracy(receipt: Receipt, model: str) -> Row:
    known = receipt.arrays(receipt.entry.classes[model])
    labelled = known["labels"] >= 0
    right, groups = (known["class"] == known["labels"])[labelled], known.get("groups")
    share = share_of(right, None if groups is None else groups[labelled])
    return accuracy_row(model, receipt.entry.seed, share, right.size)


def _evidence(receipt: Receipt, mine: list[Measured], stronger: Stronger) -> Evidence:
    entry = receipt.entry

    def arrays(one: Measured) -> Arrays:
        found = receipt.arrays(one.scores)
        return found | ({"scores": stronger[one]} if one in stronger else {})

    threats = {m.threat: parse(m.threat) for m in mine if m.threat}
    return Evidence(
        clean={m.dataset: arrays(m) for m in mine if not m.threat},
        attacked={(m.dataset, threats[m.threat]): arrays(m) for m in mine if m.threat},
        outside=[name for name, one in entry.data.items() if one.role == "outside"],
        threats=[threats[t] for t in entry.threats if t in threats],
        sides=entry.sides,
        attack=entry.attack.name,
    )


def differences(said: Iterable[Row], found: Iterable[Row]) -> Iterator[str]:
    """One sentence for each row that is not what its scores give."""
    theirs, ours = ({_key(r): r for r in rows} for rows in (said, found))
    for key, row in theirs.items():
        if key not in ours:
            yield f"{_place(row)} is in rows.jsonl, and no scores give it"
        elif wrong := _other(row, ours[key]):
            yield f"{_place(row)}: {wrong}"
    for key, row in ours.items():
        if key not in theirs:
            yield f"{_place(row)} is missing in rows.jsonl"


def _key(row: Row) -> tuple[object, ...]:
    return tuple(getattr(row, name) for name in KEY)


def _place(row: Row) -> str:
    attacked = "" if row.side == "none" else f", {row.scenario}, {row.side} attacked"
    return f"{row.metric} of {row.model} {row.detector or 'itself'} on {row.dataset}{attacked}"


def _other(said: Row, found: Row) -> str:
    for name, value in asdict(found).items():
        printed = getattr(said, name)
        if not _same(printed, value):
            return f"rows.jsonl says {name} {_short(printed)}, its scores give {_short(value)}"
    return ""


def _same(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        both_nan = math.isnan(a) and math.isnan(b)
        return both_nan or a == b or math.isclose(a, b, rel_tol=CLOSE, abs_tol=CLOSE)
    return a == b


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
