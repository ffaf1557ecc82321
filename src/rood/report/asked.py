"""Tables of what an audit measures when asked: classes held out, and corrupted ID images."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rood.evaluation.rows import OPEN_SET, Row
from rood.report.numbers import Numbers, lowest
from rood.report.tables import many, part
from rood.report.words import shown

ALARMS = "fpr95_out_fixed"  # ID images rejected at the deployed threshold
CLASS = "class_"  # begins the name of a metric of one class


@dataclass(frozen=True)
class Sheet:
    """A table of shares: a line for each detector or class, a column for each number."""

    title: str
    model: str
    first: str  # heading of the first column
    heads: Sequence[str]
    lines: Sequence[tuple[str, Sequence[Row | None]]]


def asked(numbers: Numbers, manifest: Mapping[str, Any]) -> list[Sheet]:
    """Every such table that has numbers."""
    made = [
        sheet
        for model in numbers.models
        for sheet in (
            _open_set(numbers, model),
            *_by_class(numbers, model, _class_names(manifest)),
            _corrupted(numbers, model),
        )
    ]
    return [sheet for sheet in made if sheet.lines]


def _open_set(numbers: Numbers, model: str) -> Sheet:
    attacks = numbers.scenarios
    heads = ["AUROC", "OSCR", "OSCR, OOD attacked", "right and accepted", "OOD accepted"]
    lines = []
    for detector in numbers.detectors(model):
        get = lambda metric, dataset=OPEN_SET, **of: lowest(
            numbers.get(metric, model, detector, dataset=dataset, **of)  # noqa: B023
        )
        cells = [
            get("auroc"),
            get("oscr"),
            get("oscr", scenarios=attacks, sides=("outside",)),
            get("ccr_fixed", "inside"),
            get("fpr95_in_fixed"),
        ]
        if cells[1]:
            lines.append((detector, cells))
    return Sheet("Classes held out", model, "Detector", heads, lines)


def _by_class(numbers: Numbers, model: str, names: Mapping[str, str]) -> Iterator[Sheet]:
    """AUROC against the classes held out, and the share at the threshold, class by class."""
    detectors = numbers.detectors(model)
    told = {
        "Known classes": ("ccr_fixed", "right and accepted"),
        "Classes held out, one by one": ("fpr95_in_fixed", "accepted"),
    }
    for title, (share, words) in told.items():
        numbered = _numbers_of(numbers, model, share)
        metrics = [(f"{CLASS}{n}_", names.get(n, n)) for n in numbered]
        heads = [f"{shown(d)}, {what}" for d in detectors for what in ("AUROC", words)]
        at = {"ccr_fixed": "inside"}.get(share, OPEN_SET)
        lines = [
            (
                name,
                [
                    lowest(numbers.get(metric + what, model, d, dataset=where))
                    for d in detectors
                    for what, where in (("auroc", OPEN_SET), (share, at))
                ],
            )
            for metric, name in metrics
        ]
        yield Sheet(title, model, "Class", heads, lines)


def _numbers_of(numbers: Numbers, model: str, share: str) -> list[str]:
    """The numbers of the classes that have such a share, in order."""
    found = {
        row.metric.removeprefix(CLASS).partition("_")[0]
        for row in numbers.rows
        if row.model == model and row.metric.startswith(CLASS) and row.metric.endswith(share)
    }
    return sorted(found, key=lambda n: (len(n), n))


def _class_names(manifest: Mapping[str, Any]) -> dict[str, str]:
    """By the number given: names stand in the order of the outputs, those held out behind."""
    about = part(manifest, OPEN_SET)
    order = [*many(about, "known"), *many(about, "held_out")]
    names = many(part(part(manifest, "data"), OPEN_SET), "classes")
    return {str(n): shown(name, 40) for n, name in zip(order, names, strict=False)}


def _corrupted(numbers: Numbers, model: str) -> Sheet:
    """False alarms on clean ID images, on those under any corruption, and under each."""
    rows = [r for r in numbers.rows if r.metric == ALARMS and r.dataset == "inside"]
    kinds = list(dict.fromkeys(r.scenario for r in rows if r.model == model))
    kinds = [*kinds[-1:], *kinds[:-1]]  # all of them together stand last in the rows
    lines = []
    for detector in numbers.detectors(model) if kinds else ():
        clean = lowest(numbers.get(ALARMS, model, detector))
        at = [lowest(numbers.get(ALARMS, model, detector, (k,), dataset="inside")) for k in kinds]
        lines.append((detector, [clean, *at]))
    heads = ["clean", *(shown(kind.replace("_", " ")) for kind in kinds)]
    return Sheet("False alarms on corrupted ID images", model, "Detector", heads, lines)
