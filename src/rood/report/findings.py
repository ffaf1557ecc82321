"""What an audit found, in sentences: a pure function of its rows."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from rood.evaluation.checks import checks
from rood.evaluation.checks.base import Wording
from rood.evaluation.rows import Row
from rood.report.numbers import Budget, Numbers, budget, lowest
from rood.report.words import count, listed, number, shown

COIN_TOSS = 0.5  # at or below: the detector has fallen
HOLDS = 0.8  # at or above: the detector holds

Kind = Literal["fell", "weak", "holds", "unbelieved", "untested", "compare"]
LABELS: dict[Kind, str] = {
    "fell": "Fallen",
    "weak": "Weakened",
    "holds": "Holds",
    "unbelieved": "Not believed",
    "untested": "Not tested",
    "compare": "Between networks",
}


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
    return sorted(found, key=lambda s: (s.attacked.value, -(s.clean.value if s.clean else 0)))


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
    model: str = ""

    @property
    def label(self) -> str:
        return LABELS[self.kind]

    @property
    def text(self) -> str:
        return f"{self.lead} {self.rest}"


def headline(rows: Iterable[Row]) -> str:
    """The whole audit in one sentence."""
    numbers = Numbers(rows)
    found = [s for m in numbers.models for f in numbers.families for s in outcomes(numbers, m, f)]
    if not numbers.models:
        return "There are no numbers to judge yet."
    if not found:
        return "No attack was run: nothing here says how these detectors stand up to an attacker."
    fallen = [s for s in found if s.kind == "fell"]
    doubtful = [s for s in found if s.kind == "unbelieved"]
    sound = [s for s in found if s.kind in ("holds", "weak")]
    what = _what(numbers, len(found))
    if len(fallen) == len(found):
        opening = (
            f"{what[0]} falls under attack."
            if len(found) > 1
            else "The detector falls under attack."
        )
    elif not fallen:
        opening = "No detector was brought down."
    elif len(sound) == 1 and not doubtful:
        opening = f"Only {_on(sound[0], numbers)} stays above a coin toss under attack."
    else:
        opening = f"{len(fallen)} of {what[1]} fall to a coin toss or worse under attack."
    if doubtful:
        many = "One attacked number" if len(doubtful) == 1 else f"{len(doubtful)} attacked numbers"
        opening += f" {many} cannot be believed."
    return opening


def _what(numbers: Numbers, n: int) -> tuple[str, str]:
    if len(numbers.models) == 1 and len(numbers.families) == 1:
        return "Every detector", count(n, "detector")
    if len(numbers.families) == 1:
        return "Every detector on every network", f"{n} detector–network pairs"
    return "Every detector, on every network and at every budget,", f"{n} attacked cases"


def _on(outcome: Outcome, numbers: Numbers) -> str:
    network = f" on {shown(outcome.attacked.model)}" if len(numbers.models) > 1 else ""
    return outcome.name + network


def sentences(rows: Iterable[Row]) -> list[Sentence]:
    """Everything worth saying, network by network, worst first."""
    numbers = Numbers(rows)
    if not numbers.families:
        return [_benign(numbers, model) for model in numbers.models if numbers.detectors(model)]
    found: list[Sentence] = []
    for family in numbers.families:
        for model in numbers.models:
            found += _network(numbers, model, family)
        if len(numbers.models) > 1:
            found += _between(numbers, family)
    return found


def _benign(numbers: Numbers, model: str) -> Sentence:
    best = max(
        (row for d in numbers.detectors(model) if (row := lowest(numbers.get("auroc", model, d)))),
        key=lambda row: row.value,
        default=None,
    )
    rest = "its numbers hold for clean images only."
    if best:
        rest += (
            f" The best of them is {shown(best.detector)}, with an AUROC of {number(best.value)}."
        )
    return Sentence("untested", f"Nothing was attacked on {shown(model)}:", rest, model)


def _network(numbers: Numbers, model: str, family: str) -> list[Sentence]:
    found = outcomes(numbers, model, family)
    by_kind = {kind: [s for s in found if s.kind == kind] for kind in LABELS}
    said = []
    if fallen := by_kind["fell"]:
        said.append(_fallen(fallen[0]))
        if others := [_arrow(s) for s in fallen[1:]]:
            said.append(
                Sentence("fell", f"Also fallen on {shown(model)}:", f"{listed(others)}.", model)
            )
    said += [_unbelieved(s) for s in by_kind["unbelieved"]]
    leads: dict[Kind, str] = {"weak": "Weakened but not fallen", "holds": "Still standing"}
    for kind, lead in leads.items():
        if group := by_kind[kind][::-1]:
            rest = f"{listed([_arrow(s) for s in group])}, against {group[0].budget.words()}."
            said.append(Sentence(kind, f"{lead} on {shown(model)}:", rest + _caution(group), model))
    said += _best(found, model)
    attacked = {s.attacked.detector for s in found}
    if left_out := [shown(d) for d in numbers.detectors(model) if d not in attacked]:
        lead = f"Not attacked on {shown(model)} ({budget(numbers.largest(family)[0]).label()}):"
        said.append(Sentence("untested", lead, f"{listed(left_out)}.", model))
    return said


def _best(found: list[Outcome], model: str) -> list[Sentence]:
    """The detector to take if one must be taken."""
    believed = [s for s in found if s.believed]
    if not believed:
        lead = f"No attacked number on {shown(model)} can be believed,"
        rest = "so none of its detectors can be recommended."
        return [Sentence("unbelieved", lead, rest, model)] if found else []
    best = believed[-1]
    value = number(best.attacked.value)
    if best.kind == "fell":
        # one that could not be judged is no survivor, but it has not been seen to fall either
        every = all(s.kind == "fell" for s in found)
        judged = "No detector" if every else "No detector that could be judged"
        lead = f"{judged} on {shown(model)} survives:"
        rest = f"the best in the worst case, {best.name}, is left with an AUROC of {value}."
    else:
        lead = f"Best in the worst case on {shown(model)}:"
        rest = f"{best.name}, which keeps an AUROC of {value}{_clean(best)}."
    return [Sentence(best.kind, lead, rest, model)]


def _fallen(s: Outcome) -> Sentence:
    row = s.attacked
    before = f"from {number(s.clean.value)} to " if s.clean else "to "
    rest = (
        f"{s.budget.words()} brings its AUROC {before}{number(row.value)} "
        f"(OOD images: {shown(row.dataset)})."
    )
    if row.verdict == "fail":
        rest += (
            f" The attack failed its own checks{_why(s)}, so {number(row.value)} itself is not to "
            "be believed: the true one may be lower still."
        )
    else:
        rest += _caution([s])
    return Sentence("fell", f"Do not trust {s.name} on {shown(row.model)}:", rest, row.model)


def _unbelieved(s: Outcome) -> Sentence:
    row = s.attacked
    value = number(row.value)
    lead = f"Do not believe the attacked AUROC of {value} of {s.name} on {shown(row.model)}:"
    rest = f"the attack failed its own checks{_why(s)}. Treat the detector as untested."
    return Sentence("unbelieved", lead, rest, row.model)


# this warning means that the number is too low, the others that it is too high
ROUNDED = explain("lost_by_rounding").because


def _caution(found: list[Outcome]) -> str:
    warned = [s for s in found if s.attacked.verdict == "warn"]
    weak = {
        s.name: [r for r in s.reasons if r != ROUNDED] for s in warned if s.reasons != (ROUNDED,)
    }
    rounded = {s.name: [ROUNDED] for s in warned if ROUNDED in s.reasons}
    alone = len(found) == 1
    text = _warned(weak, alone, "a better one may go lower")
    text += _warned(rounded, alone, "for images stored with 8 bits the AUROC is higher")
    for side, images in (("outside", "OOD"), ("inside", "ID")):
        if one := [s.name for s in found if s.attacked.side == side]:
            who = "" if alone else f" for {listed(one)}"
            text += f" Only {images} images were attacked{who}; "
            text += "with both sides attacked it can only be lower."
    return text


def _warned(reasons: dict[str, list[str]], alone: bool, so: str) -> str:
    """What follows from the reasons for a warning, by detector."""
    if not reasons:
        return ""
    all_of_them = list(dict.fromkeys(r for given in reasons.values() for r in given))
    why = f" ({listed(all_of_them)})" if all_of_them else ""
    whose = "The attack" if alone else f"The attack on {listed(list(reasons))}"
    return f" {whose} raised a warning{why}: {so}."


def _why(s: Outcome) -> str:
    return f" ({listed(list(s.reasons))})" if s.reasons else ""


def _arrow(s: Outcome) -> str:
    if not s.clean:
        return f"{s.name} ({number(s.attacked.value)})"
    return f"{s.name} ({number(s.clean.value)}\u00a0→\u00a0{number(s.attacked.value)})"


def _clean(s: Outcome) -> str:
    return f" ({number(s.clean.value)} without an attack)" if s.clean else ""


def _between(numbers: Numbers, family: str) -> list[Sentence]:
    """What another network buys, and what it costs."""
    best = [
        believed[-1]
        for model in numbers.models
        if (believed := [s for s in outcomes(numbers, model, family) if s.believed])
    ]
    if len(best) < 2:
        return []
    low, high = (f(best, key=lambda s: s.attacked.value) for f in (min, max))
    a, b = low.attacked, high.attacked
    if b.value - a.value < 0.05:
        rest = (
            f"little. At {high.budget.label()} the best worst-case AUROC is about the same on "
            f"every network ({number(a.value)} to {number(b.value)})."
        )
        return [Sentence("compare", "What hardening buys:", rest)]
    rest = (
        f"going from {shown(a.model)} to {shown(b.model)} lifts the best worst-case AUROC at "
        f"{high.budget.label()} from {number(a.value)} ({low.name}) "
        f"to {number(b.value)} ({high.name})"
    )
    before, after = numbers.accuracy(a.model), numbers.accuracy(b.model)
    if before and after:
        pair = [number(before.value), number(after.value)]
        cost = f"stays at {pair[0]}" if pair[0] == pair[1] else f"goes from {pair[0]} to {pair[1]}"
        rest += f"; the accuracy on clean images {cost}"
    return [Sentence("compare", "What hardening buys:", rest + ".")]
