"""What became of each detector under attack, and the phrases that tell it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from rood.evaluation.checks import checks
from rood.evaluation.checks.base import Wording
from rood.evaluation.rows import Row
from rood.report.numbers import Budget, Numbers, budget, lowest
from rood.report.words import listed, number, shown

COIN_TOSS = 0.5  # at or below: the detector has fallen
HOLDS = 0.8  # at or above: the detector holds


Kind = Literal["fell", "weak", "holds", "unbelieved", "untested", "compare", "threshold"]
LABELS: dict[Kind, str] = {
    "fell": "Fallen",
    "weak": "Weakened",
    "holds": "Holds",
    "unbelieved": "Not believed",
    "untested": "Not tested",
    "compare": "Between networks",
    "threshold": "At the threshold",
}


def flag_name(metric: str) -> str:
    """The name of a check, as the metric of its rows has it; safe as an anchor."""
    return re.sub(r"\W", "_", metric.removeprefix("flag_"))


def explain(metric: str) -> Wording:
    """The wording of a flag's row; a flag that no check of this version raises keeps its name."""
    name = metric.removeprefix("flag_")
    for check in checks():
        if check.name == name:
            return check.wording
    plain = shown(name.replace("_", " ")) or "unnamed flag"
    return Wording(plain, plain, "No explanation is known for this flag.", "See rows.jsonl.")


@dataclass(frozen=True)
class Outcome:
    """One detector on one network under attack, and whether to believe the number."""

    attacked: Row
    clean: Row | None  # on the same OOD images
    reasons: tuple[str, ...]  # the flags with the row's own verdict
    escaped: bool  # the attacked images were outside the budget

    @property
    def believed(self) -> bool:
        return self.attacked.verdict != "fail"

    @property
    def kind(self) -> Kind:
        # an attack that succeeds is its own proof, however poor its checks, if it kept to the rules
        if self.attacked.value <= COIN_TOSS and not self.escaped:
            return "fell"
        if not self.believed:
            return "unbelieved"
        return "holds" if self.attacked.value >= HOLDS else "weak"

    @property
    def budget(self) -> Budget:
        return budget(self.attacked.scenario)

    @property
    def name(self) -> str:
        return shown(self.attacked.detector)

    @property
    def value(self) -> str:
        return number(self.attacked.value)


def outcomes(numbers: Numbers, model: str, family: str) -> list[Outcome]:
    """Every attacked detector of a network at the largest eps, worst first."""
    found = []
    scenarios = numbers.largest(family)
    for detector in numbers.detectors(model):
        both = numbers.get("auroc", model, detector, scenarios, ("both",))
        one = numbers.get("auroc", model, detector, scenarios, ("outside", "inside"))
        attacked = lowest(both or one)
        if attacked is not None:
            found.append(_outcome(numbers, attacked))
    return sorted(found, key=lambda o: (o.attacked.value, -(o.clean.value if o.clean else 0)))


def all_outcomes(numbers: Numbers) -> list[Outcome]:
    """Those of every network and norm."""
    return [o for m in numbers.models for f in numbers.families for o in outcomes(numbers, m, f)]


def _outcome(numbers: Numbers, attacked: Row) -> Outcome:
    clean = numbers.get("auroc", attacked.model, attacked.detector, dataset=attacked.dataset)
    flags = [
        row.metric
        for row in numbers.rows
        if row.metric.startswith("flag_")
        and (row.model, row.detector) == (attacked.model, attacked.detector)
        and row.scenario in (attacked.scenario, "")
        and row.side in (attacked.side, "none")
        and row.dataset in (attacked.dataset, "")
        and row.verdict == attacked.verdict in ("warn", "fail")
    ]
    reasons = tuple(dict.fromkeys(explain(metric).because for metric in flags))
    escaped = attacked.verdict == "fail" and "flag_left_the_threat_model" in flags
    return Outcome(attacked, lowest(clean), reasons, escaped)


@dataclass(frozen=True)
class Sentence:
    """One finding and what kind it is."""

    kind: Kind
    lead: str  # what it is about; set in bold
    rest: str

    @property
    def label(self) -> str:
        return LABELS[self.kind]


# this warning means that the number is too low, the others that it is too high
ROUNDED = explain("lost_by_rounding").because


def caution(found: list[Outcome]) -> str:
    """What to keep in mind: warnings, and sides that were not attacked."""
    alone = len(found) == 1
    whose = lambda some: (
        "The attack" if alone else f"The attack on {listed([o.name for o in some])}"
    )
    warned = [o for o in found if o.attacked.verdict == "warn"]
    text = ""
    if high := [o for o in warned if o.reasons != (ROUNDED,)]:
        reasons = dict.fromkeys(r for o in high for r in o.reasons if r != ROUNDED)
        text += f" {whose(high)} raised a warning{why(reasons)}: a better one may go lower."
    if low := [o for o in warned if ROUNDED in o.reasons]:
        text += f" {whose(low)} raised a warning{why([ROUNDED])}: "
        text += "for images stored with 8 bits the AUROC is higher."
    for side, images in (("outside", "OOD"), ("inside", "ID")):
        if one := [o.name for o in found if o.attacked.side == side]:
            who = "" if alone else f" for {listed(one)}"
            text += f" Only {images} images were attacked{who}; "
            text += "with both sides attacked it can only be lower."
    return text


def why(reasons: Iterable[str]) -> str:
    """Reasons in parentheses."""
    given = list(reasons)
    return f" ({listed(given)})" if given else ""


def arrow(o: Outcome) -> str:
    """A detector with its AUROC before and after."""
    before = f"{number(o.clean.value)}\u00a0→\u00a0" if o.clean else ""
    return f"{o.name} ({before}{o.value})"
