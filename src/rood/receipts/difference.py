"""Two results folders or receipts side by side: what changed, and by how much each AUROC did."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

from rood.errors import ResultsError
from rood.evaluation.rows import CLEAN, Row
from rood.evaluation.store import Contents, SavedScores, read_folder
from rood.metrics import Interval, auroc, auroc_difference

WHAT = ("settings", "versions", "hardware")  # entries of the manifest
LEVEL = 0.05  # probability that one change at least is called one by chance
Place = tuple[str, str, str, str]  # detector, set, condition, network ("" where each has one)


@dataclass(frozen=True)
class Change:
    """An AUROC in both folders."""

    model: str
    detector: str
    dataset: str
    scenario: str
    side: str
    before: float
    after: float
    difference: Interval
    paired: bool  # whether both are of the same images
    verdicts: tuple[str, str]
    sure: int  # -1 lower, +1 higher, beyond what chance gives among all changes; else 0

    @property
    def word(self) -> str:
        """For tables."""
        return {-1: "lower", 0: "same", 1: "higher"}[self.sure]


@dataclass(frozen=True)
class Difference:
    """Everything in which two folders differ."""

    names: tuple[str, str]
    facts: tuple[str, ...]  # what else changed: weights, images, attack, versions
    changes: tuple[Change, ...]
    alone: tuple[str, ...]  # what only one of them has

    @property
    def lower(self) -> list[Change]:
        """What fell, surely."""
        return [c for c in self.changes if c.sure < 0]


def difference(a: str | Path, b: str | Path) -> Difference:
    """Compare two results folders or receipts; the images of both should be the same.

    Intervals are DeLong's. They are paired, and so narrower, where both folders have the same
    images by their hashes; images count as independent. A change is called lower or higher where it
    is so beyond chance among all of the changes (Bonferroni).

    Parameters
    ----------
    a, b
        Folders that `rood audit` wrote, the earlier one first.

    Examples
    --------
    >>> import tempfile, rood
    >>> from rood.receipts.difference import difference
    >>> out = tempfile.mkdtemp()
    >>> _ = rood.audit("digits-ce", ["msp"], inside="digits:inside", outside="digits:near",
    ...                threats=[], limit=20, out=out)
    >>> found = difference(out, out)
    >>> [(c.difference.value, c.word) for c in found.changes], found.facts
    ([(0.0, 'same')], ())
    """
    sides = [_Side(read_folder(Path(p))) for p in (a, b)]
    one_each = all(len(s.models) == 1 for s in sides)
    first, second = (s.rows(one_each) for s in sides)
    shared = [key for key in first if key in second]
    if not shared:
        raise ResultsError(
            f"expected numbers that {a} and {b} both have, found none: the detectors, OOD sets or "
            "attacks are others"
        )
    z = NormalDist().inv_cdf(1 - LEVEL / (2 * len(shared)))
    changes = tuple(_change(sides, first[key], second[key], z) for key in shared)
    alone = [f"only {a}: {_said(key)}" for key in first if key not in second]
    alone += [f"only {b}: {_said(key)}" for key in second if key not in first]
    facts = [
        f"{name}: {p}" for name, s in zip((a, b), sides, strict=True) for p in s.contents.problems
    ]
    facts += _facts(*(s.contents.manifest or {} for s in sides))
    return Difference((str(a), str(b)), tuple(facts), changes, tuple(alone))


class _Side:
    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.models = list(dict.fromkeys(s.origin.model for s in contents.scores))
        self._scores = {(*s.origin[:3], s.origin.condition): s for s in contents.scores}

    def rows(self, one_each: bool) -> dict[tuple[str, ...], Row]:
        """Every AUROC, by what it is of."""
        return {
            ("" if one_each else r.model, r.detector, r.dataset, r.scenario, r.side): r
            for r in self.contents.rows
            if r.metric == "auroc"
        }

    def scores(self, row: Row) -> tuple[SavedScores, SavedScores]:
        """The scores of ID and OOD images behind an AUROC."""
        inside = row.scenario if row.side in ("inside", "both") else CLEAN
        outside = row.scenario if row.side in ("outside", "both") else CLEAN
        try:
            return (
                self._scores[row.model, row.detector, "inside", inside],
                self._scores[row.model, row.detector, row.dataset, outside],
            )
        except KeyError as e:
            raise ResultsError(f"expected the scores of {e}, found none: audit again") from e

    def images(self, dataset: str) -> object:
        """The hash of the images of a set; None where the manifest has none."""
        settings = (self.contents.manifest or {}).get("settings")
        data = settings.get("data") if isinstance(settings, Mapping) else None
        return data.get(dataset) if isinstance(data, Mapping) else None


def _change(sides: list[_Side], old: Row, new: Row, z: float) -> Change:
    (in_a, out_a), (in_b, out_b) = sides[0].scores(old), sides[1].scores(new)
    same = all(
        (known := sides[0].images(d)) is not None and known == sides[1].images(d)
        for d in ("inside", old.dataset)
    )
    pairs = (in_a.scores, out_a.scores), (in_b.scores, out_b.scores)
    found = auroc_difference(*pairs, paired=same)
    strict = auroc_difference(*pairs, paired=same, z=z)
    return Change(
        model=new.model,
        detector=new.detector,
        dataset=new.dataset,
        scenario=new.scenario,
        side=new.side,
        before=auroc(inside=in_a.scores, outside=out_a.scores),
        after=auroc(inside=in_b.scores, outside=out_b.scores),
        difference=found,
        paired=same,
        verdicts=(old.verdict, new.verdict),
        sure=-1 if strict.high < 0 else 1 if strict.low > 0 else 0,
    )


def _said(key: tuple[str, ...]) -> str:
    model, detector, dataset, scenario, side = key
    attacked = "" if side == "none" else f", {side} attacked"
    return f"{model} {detector} on {dataset}, {scenario}{attacked}".strip()


def _facts(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    """What changed besides the numbers, in words."""
    for key in WHAT:
        yield from _differing(a.get(key), b.get(key), "")


def _differing(old: Any, new: Any, name: str) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys((*old, *new)):
            if "memory" not in str(key):
                yield from _differing(old.get(key), new.get(key), f"{name} {key}".strip())
    elif old != new:
        yield f"{name}: {_short(old)} -> {_short(new)}"


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    hashed = len(text) >= 16 and all(c in "0123456789abcdef" for c in text)
    return f"{text[:12]}..." if hashed else text[:80]
