"""What stands behind a badge: the flags of one attacked number, and where to read more."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import metadata

from rood.evaluation.rows import Row
from rood.report.numbers import Numbers, in_words
from rood.report.outcomes import explain, flag_name
from rood.report.words import percent, shown

FLAGS_PAGE = "understand/flags"  # of the documentation
MEANING = {
    "pass": "No check found a fault with the attack behind this number. That is no proof: an "
    "attack that nobody has tried may lower it.",
    "warn": "Read this number as an upper bound: a check saw a sign of a weak attack.",
    "fail": "Do not believe this number: the attack failed a check, and a better one may lower it.",
}
ATTACKED = {"outside": "OOD images attacked", "inside": "ID images attacked"}

Case = tuple[str, str, str, str, str]  # network, detector, OOD set, scenario, side


@dataclass(frozen=True)
class Reason:
    """One flag behind a verdict."""

    name: str  # of the check; the anchor of its explanation
    title: str
    meaning: str
    evidence: str


@dataclass(frozen=True)
class Note:
    """What opens behind a badge."""

    id: str
    verdict: str
    where: str
    reasons: tuple[Reason, ...]

    @property
    def meaning(self) -> str:
        return MEANING[self.verdict]


class Verdicts:
    """The notes behind the badges of some rows: one for all that passed, one for each other."""

    def __init__(self, numbers: Numbers, rows: Iterable[Row]) -> None:
        self._flags: dict[Case, list[Row]] = {}
        for row in numbers.rows:
            if row.metric.startswith("flag_") and row.verdict in ("warn", "fail"):
                self._flags.setdefault(_case(row), []).append(row)
        self._notes: dict[Case, Note] = {}
        for row in rows:
            if row.verdict in ("warn", "fail"):
                self._notes.setdefault(_case(row), self._note(row))
        self._passed = Note("verdict-pass", "pass", "", ())

    def of(self, row: Row) -> Note | None:
        """The note of a row; None where nothing was attacked."""
        return self._passed if row.verdict == "pass" else self._notes.get(_case(row))

    def all(self) -> list[Note]:
        """Every note, once."""
        return [self._passed, *self._notes.values()]

    def _note(self, row: Row) -> Note:
        side = ATTACKED.get(row.side, "both sides attacked")
        where = f"{shown(row.detector)} on {shown(row.model)}, {side}, OOD images "
        where += f"{shown(row.dataset)}, {in_words(row.scenario)}"
        reasons = tuple(_reason(flag) for flag in self._flags.get(_case(row), ()))
        return Note(f"verdict-{len(self._notes)}", row.verdict, where, reasons)


def _reason(flag: Row) -> Reason:
    wording = explain(flag.metric)
    evidence = percent(flag.value) if wording.share else f"{flag.value:.3g}"
    said = f"{flag.verdict}, {evidence}"
    return Reason(flag_name(flag.metric), wording.title, wording.meaning, said)


def _case(row: Row) -> Case:
    return row.model, row.detector, row.dataset, row.scenario, row.side


@cache
def documentation() -> str:
    """The address of the documentation, as this installation states it; "" where it has none."""
    try:
        stated = metadata.metadata("rood").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return ""
    addresses = {
        name.strip().lower(): url.strip()
        for name, _, url in (str(entry).partition(",") for entry in stated)
    }
    found = addresses.get("documentation", "")
    return found.rstrip("/") if found.startswith("https://") else ""


def flags_page(name: str) -> str:
    """Where the documentation explains a flag; "" where no address is known."""
    return f"{documentation()}/{FLAGS_PAGE}.html#{name}" if documentation() else ""
