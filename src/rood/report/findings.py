"""What an audit found, in sentences: a pure function of its rows."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from rood.evaluation.checks import checks
from rood.evaluation.checks.base import Wording
from rood.evaluation.rows import Row
from rood.report.numbers import Budget, Numbers, budget, highest, lowest
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


def headline(numbers: Numbers) -> str:
    """The whole audit in one sentence."""
    found = [o for m in numbers.models for f in numbers.families for o in outcomes(numbers, m, f)]
    if not numbers.models:
        return "There are no numbers to judge yet."
    if not found:
        return "No attack was run: nothing here says how these detectors stand up to an attacker."
    fallen = [o for o in found if o.kind == "fell"]
    doubtful = [o for o in found if o.kind == "unbelieved"]
    every, cases = _what(numbers, len(found))
    if len(fallen) == len(found):
        opening = f"{every} falls under attack."
    elif not fallen:
        opening = "No detector was brought down."
    elif len(fallen) == len(found) - 1 and not doubtful:
        (sound,) = (o for o in found if o not in fallen)
        network = f" on {shown(sound.attacked.model)}" if len(numbers.models) > 1 else ""
        opening = f"Only {sound.name}{network} stays above a coin toss under attack."
    else:
        opening = f"{len(fallen)} of {cases} fall to a coin toss or worse under attack."
    if doubtful:
        many = "One attacked number" if len(doubtful) == 1 else f"{len(doubtful)} attacked numbers"
        opening += f" {many} cannot be believed."
    return opening


def _what(numbers: Numbers, n: int) -> tuple[str, str]:
    """All attacked cases as the subject of a sentence, and their number."""
    if n == 1:
        return "The detector", "1 detector"
    if len(numbers.families) > 1:
        return "Every detector, on every network and at every budget,", f"{n} attacked cases"
    if len(numbers.models) > 1:
        return "Every detector on every network", f"{n} detector–network pairs"
    return "Every detector", count(n, "detector")


def sentences(numbers: Numbers) -> list[Sentence]:
    """Everything worth saying, network by network, worst first."""
    if not numbers.families:
        return [_not_attacked(numbers, m) for m in numbers.models if numbers.detectors(m)]
    found: list[Sentence] = []
    for family in numbers.families:
        for model in numbers.models:
            found += _network(numbers, model, family)
        if len(numbers.models) > 1:
            found += _between(numbers, family)
    return found


def _not_attacked(numbers: Numbers, model: str) -> Sentence:
    rest = "its numbers hold for clean images only."
    clean = [lowest(numbers.get("auroc", model, d)) for d in numbers.detectors(model)]
    if best := highest([row for row in clean if row]):
        name, value = shown(best.detector), number(best.value)
        rest += f" The best of them is {name}, with an AUROC of {value}."
    return Sentence("untested", f"Nothing was attacked on {shown(model)}:", rest)


def _network(numbers: Numbers, model: str, family: str) -> list[Sentence]:
    found = outcomes(numbers, model, family)
    by_kind = {kind: [o for o in found if o.kind == kind] for kind in LABELS}
    said = []
    if fallen := by_kind["fell"]:
        said.append(_fallen(fallen[0]))
        if others := [_arrow(o) for o in fallen[1:]]:
            said.append(Sentence("fell", f"Also fallen on {shown(model)}:", f"{listed(others)}."))
    said += [_unbelieved(o) for o in by_kind["unbelieved"]]
    leads: dict[Kind, str] = {"weak": "Weakened but not fallen", "holds": "Still standing"}
    for kind, lead in leads.items():
        if group := by_kind[kind][::-1]:
            rest = f"{listed([_arrow(o) for o in group])}, against {group[0].budget.words()}."
            said.append(Sentence(kind, f"{lead} on {shown(model)}:", rest + _caution(group)))
    said += _best(found, shown(model))
    attacked = {o.attacked.detector for o in found}
    if left_out := [shown(d) for d in numbers.detectors(model) if d not in attacked]:
        lead = f"Not attacked on {shown(model)} ({numbers.strongest[family]}):"
        said.append(Sentence("untested", lead, f"{listed(left_out)}."))
    return said


def _best(found: list[Outcome], model: str) -> list[Sentence]:
    """The detector to take if one must be taken."""
    believed = [o for o in found if o.believed]
    if not believed:
        lead = f"No attacked number on {model} can be believed,"
        rest = "so none of its detectors can be recommended."
        return [Sentence("unbelieved", lead, rest)] if found else []
    best = believed[-1]
    if best.kind == "fell":
        # one that could not be judged is no survivor, but it has not been seen to fall either
        every = all(o.kind == "fell" for o in found)
        judged = "No detector" if every else "No detector that could be judged"
        lead = f"{judged} on {model} survives:"
        rest = f"the best in the worst case, {best.name}, is left with an AUROC of {best.value}."
    else:
        clean = f" ({number(best.clean.value)} without an attack)" if best.clean else ""
        lead = f"Best in the worst case on {model}:"
        rest = f"{best.name}, which keeps an AUROC of {best.value}{clean}."
    return [Sentence(best.kind, lead, rest)]


def _fallen(o: Outcome) -> Sentence:
    row = o.attacked
    before = f"from {number(o.clean.value)} to" if o.clean else "to"
    rest = f"{o.budget.words()} brings its AUROC {before} {o.value} "
    rest += f"(OOD images: {shown(row.dataset)})."
    if o.believed:
        rest += _caution([o])
    else:
        rest += f" The attack failed its own checks{_why(o.reasons)}, so {o.value} itself is not "
        rest += "to be believed: the true one may be lower still."
    return Sentence("fell", f"Do not trust {o.name} on {shown(row.model)}:", rest)


def _unbelieved(o: Outcome) -> Sentence:
    model = shown(o.attacked.model)
    lead = f"Do not believe the attacked AUROC of {o.value} of {o.name} on {model}:"
    rest = f"the attack failed its own checks{_why(o.reasons)}. Treat the detector as untested."
    return Sentence("unbelieved", lead, rest)


# this warning means that the number is too low, the others that it is too high
ROUNDED = explain("lost_by_rounding").because


def _caution(found: list[Outcome]) -> str:
    """What to keep in mind: warnings, and sides that were not attacked."""
    alone = len(found) == 1
    whose = lambda some: (
        "The attack" if alone else f"The attack on {listed([o.name for o in some])}"
    )
    warned = [o for o in found if o.attacked.verdict == "warn"]
    text = ""
    if high := [o for o in warned if o.reasons != (ROUNDED,)]:
        reasons = dict.fromkeys(r for o in high for r in o.reasons if r != ROUNDED)
        text += f" {whose(high)} raised a warning{_why(reasons)}: a better one may go lower."
    if low := [o for o in warned if ROUNDED in o.reasons]:
        text += f" {whose(low)} raised a warning{_why([ROUNDED])}: "
        text += "for images stored with 8 bits the AUROC is higher."
    for side, images in (("outside", "OOD"), ("inside", "ID")):
        if one := [o.name for o in found if o.attacked.side == side]:
            who = "" if alone else f" for {listed(one)}"
            text += f" Only {images} images were attacked{who}; "
            text += "with both sides attacked it can only be lower."
    return text


def _why(reasons: Iterable[str]) -> str:
    given = list(reasons)
    return f" ({listed(given)})" if given else ""


def _arrow(o: Outcome) -> str:
    before = f"{number(o.clean.value)}\u00a0→\u00a0" if o.clean else ""
    return f"{o.name} ({before}{o.value})"


def _between(numbers: Numbers, family: str) -> list[Sentence]:
    """What another network buys, and what it costs."""
    best = [
        believed[-1]
        for model in numbers.models
        if (believed := [o for o in outcomes(numbers, model, family) if o.believed])
    ]
    if len(best) < 2:
        return []
    low, high = (f(best, key=lambda o: o.attacked.value) for f in (min, max))
    a, b = low.attacked, high.attacked
    lead, label = "What hardening buys:", high.budget.label()
    if b.value - a.value < 0.05:
        rest = f"little. At {label} the best worst-case AUROC is about the same on every network "
        return [Sentence("compare", lead, f"{rest}({low.value} to {high.value}).")]
    rest = f"going from {shown(a.model)} to {shown(b.model)} lifts the best worst-case AUROC at "
    rest += f"{label} from {low.value} ({low.name}) to {high.value} ({high.name})"
    before, after = numbers.accuracy(a.model), numbers.accuracy(b.model)
    if before and after:
        pair = [number(before.value), number(after.value)]
        cost = f"stays at {pair[0]}" if pair[0] == pair[1] else f"goes from {pair[0]} to {pair[1]}"
        rest += f"; the accuracy on clean images {cost}"
    return [Sentence("compare", lead, rest + ".")]
