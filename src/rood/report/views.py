"""The same numbers by OOD set, and by ID class from the scores of each image."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rood.evaluation.rows import CLEAN
from rood.evaluation.store import Array, Contents, Origin, SavedScores
from rood.metrics import Interval, share_of, summary
from rood.report.numbers import Numbers, lowest
from rood.report.tables import many, part
from rood.report.words import shown

FEWEST = 5  # images of a class below which its AUROC is not shown
MOST_CLASSES = 40  # in a table; those with the lowest accuracy


@dataclass(frozen=True)
class Pair:
    """An AUROC before and after an attack."""

    clean: Interval | None
    attacked: Interval | None
    verdict: str = "-"


@dataclass(frozen=True)
class Breakdown:
    """One table: a line for each set or class, a column for each detector."""

    title: str
    model: str
    budget: str
    detectors: list[str]
    lines: list["Part"]
    left_out: int = 0


@dataclass(frozen=True)
class Part:
    """An OOD set or an ID class."""

    name: str
    n: int
    accuracy: Interval | None
    pairs: list[Pair | None]


def by_set(numbers: Numbers) -> list[Breakdown]:
    """AUROC on every OOD set, clean and attacked; nothing where there is only one set."""
    return [
        Breakdown("OOD set", model, label, numbers.detectors(model), lines)
        for model in numbers.models
        for family, label in (numbers.strongest or {"": ""}).items()
        if len(lines := _set_lines(numbers, model, numbers.largest(family))) > 1
    ]


def _set_lines(numbers: Numbers, model: str, attacks: list[str]) -> list[Part]:
    lines = []
    for dataset in numbers.datasets(model):
        pairs, n = list[Pair | None](), 0
        for detector in numbers.detectors(model):
            clean = lowest(numbers.get("auroc", model, detector, dataset=dataset))
            get = lambda *sides: numbers.get("auroc", model, detector, attacks, sides, dataset)  # noqa: B023
            attacked = lowest(get("both") or get("outside", "inside"))
            known = attacked or clean
            n = known.n_out if known else n
            pairs.append(_pair(clean, attacked) if known else None)
        lines.append(Part(dataset, n, None, pairs))
    return lines


def _pair(clean: Any, attacked: Any) -> Pair:
    whole = lambda row: Interval(row.value, row.low, row.high) if row else None
    return Pair(whole(clean), whole(attacked), attacked.verdict if attacked else "-")


def by_class(folder: Contents, numbers: Numbers) -> list[Breakdown]:
    """Accuracy and AUROC of each ID class; nothing where images have no labels.

    The AUROC is that of the ID images of one class against the OOD set that is hardest for the
    detector, clean and with both sides attacked at the largest budget.
    """
    saved = {s.origin: s for s in folder.scores}
    names = _names(folder.manifest or {})
    found = []
    for model in numbers.models:
        for family, label in (numbers.strongest or {"": ""}).items():
            lines = _class_lines(folder, numbers, saved, (model, family))
            if len(lines) > 1:
                kept = sorted(lines, key=_weakness)[:MOST_CLASSES]
                named = [Part(names.get(i.name, i.name), *_rest(i)) for i in kept]
                detectors = numbers.detectors(model)
                found.append(
                    Breakdown("ID class", model, label, detectors, named, len(lines) - len(kept))
                )
    return found


def _rest(line: Part) -> tuple[int, Interval | None, list[Pair | None]]:
    return line.n, line.accuracy, line.pairs


def _weakness(line: Part) -> tuple[float, int]:
    """The least accurate classes first."""
    return (line.accuracy.value if line.accuracy else 1.0), int(line.name)


def _names(manifest: Mapping[str, Any]) -> dict[str, str]:
    listed = many(part(part(manifest, "data"), "inside"), "classes")
    return {str(i): shown(name, 40) for i, name in enumerate(listed)}


def _class_lines(
    folder: Contents, numbers: Numbers, saved: Mapping[Origin, SavedScores], who: tuple[str, str]
) -> list[Part]:
    model, family = who
    right = next((c for c in folder.classes if c.model == model), None)
    columns = [
        _Column.of(numbers, saved, model, detector, numbers.largest(family))
        for detector in numbers.detectors(model)
    ]
    labels = [column.labels for column in columns if column]
    labels += [right.labels] if right else []
    lines = []
    for label in sorted({int(y) for known in labels for y in np.unique(known) if y >= 0}):
        mine = right.predicted[right.labels == label] if right else np.zeros(0)
        n = max(int((known == label).sum()) for known in labels)
        accuracy = share_of(mine == label) if len(mine) else None
        pairs = [column.pair(label) if column else None for column in columns]
        lines.append(Part(str(label), n, accuracy, pairs))
    return lines


Sides = tuple[SavedScores, SavedScores]  # ID and OOD images


@dataclass(frozen=True)
class _Column:
    """The scores of one detector, clean and attacked, with the labels of the ID images."""

    clean: Sides
    attacked: Sides | None
    verdict: str

    @classmethod
    def of(
        cls,
        numbers: Numbers,
        saved: Mapping[Origin, SavedScores],
        model: str,
        detector: str,
        attacks: list[str],
    ) -> "_Column | None":
        """On the OOD set where the detector is worst; None where scores or labels are missing."""
        attacked = lowest(numbers.get("auroc", model, detector, attacks, ("both",)))
        row = attacked or lowest(numbers.get("auroc", model, detector))
        if row is None:
            return None

        def sides(condition: str) -> Sides | None:
            inside = _usable(saved.get(Origin(model, detector, "inside", "inside", condition)))
            outside = Origin(model, detector, row.dataset, "outside", condition)
            there = _usable(saved.get(outside))
            return (inside, there) if inside and there else None

        clean = sides(CLEAN)
        if clean is None or clean[0].labels is None:
            return None
        return cls(clean, sides(attacked.scenario) if attacked else None, row.verdict)

    @property
    def labels(self) -> Array:
        """Of the clean ID images."""
        assert self.clean[0].labels is not None
        return self.clean[0].labels

    def pair(self, label: int) -> Pair | None:
        """The AUROC of the images of one class."""
        clean, attacked = _auroc(self.clean, label), _auroc(self.attacked, label)
        return Pair(clean, attacked, self.verdict) if clean else None


def _usable(saved: SavedScores | None) -> SavedScores | None:
    """Scores of which an AUROC can be computed."""
    good = saved is not None and saved.scores.size > 0 and not np.isnan(saved.scores).any()
    return saved if good else None


def _auroc(sides: Sides | None, label: int) -> Interval | None:
    if sides is None or sides[0].labels is None:
        return None
    which = sides[0].labels == label
    if which.sum() < FEWEST:
        return None
    return summary(sides[0].scores[which], sides[1].scores, resamples=1)["auroc"]
