"""What an audit found, in plain words: a pure function of its rows."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from rood.evaluation.results import Row
from rood.report.flags import explain
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


@dataclass(frozen=True)
class Sentence:
    """One finding and what kind it is."""

    kind: Kind
    text: str
    model: str = ""

    @property
    def label(self) -> str:
        return LABELS[self.kind]


@dataclass(frozen=True)
class Standing:
    """Where one detector on one network stands against one attacker."""

    attacked: Row
    clean: Row | None  # the same outside images before the attack
    reasons: tuple[str, ...]  # findings of the same severity as the row's verdict
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


def standings(numbers: Numbers, model: str, family: str) -> list[Standing]:
    """Every attacked detector of a network at the largest eps, worst first."""
    found = []
    scenarios = numbers.largest(family)
    for detector in numbers.detectors(model):
        both = numbers.get("auroc", model, detector, scenarios, ("both",))
        one = numbers.get("auroc", model, detector, scenarios, ("outside", "inside"))
        attacked = lowest(both or one)
        if attacked is not None:
            found.append(_standing(numbers, attacked))
    return sorted(found, key=lambda s: (s.attacked.value, -(s.clean.value if s.clean else 0)))


def _standing(numbers: Numbers, attacked: Row) -> Standing:
    clean = numbers.get("auroc", attacked.model, attacked.detector, dataset=attacked.dataset)
    findings = [
        row.metric
        for row in numbers.rows
        if row.metric.startswith("flag_")
        and (row.model, row.detector) == (attacked.model, attacked.detector)
        and row.scenario in (attacked.scenario, "")
        and row.dataset in (attacked.dataset, "")
        and row.verdict == attacked.verdict in ("warn", "fail")
    ]
    reasons = tuple(dict.fromkeys(explain(metric).because for metric in findings))
    escaped = attacked.verdict == "fail" and "flag_left_the_box" in findings
    return Standing(attacked, lowest(clean), reasons, escaped)


def headline(rows: Iterable[Row]) -> str:
    """The whole audit in one sentence."""
    numbers = Numbers(rows)
    found = [s for m in numbers.models for f in numbers.families for s in standings(numbers, m, f)]
    if not numbers.models:
        return "There are no numbers to judge yet."
    if not found:
        return "No attack was run: nothing here says how these detectors stand up to an attacker."
    fallen = [s for s in found if s.kind == "fell"]
    doubtful = [s for s in found if s.kind == "unbelieved"]
    sound = [s for s in found if s.kind in ("holds", "weak")]
    what = _what(numbers, len(found))
    if len(fallen) == len(found):
        opening = f"{what[0]} falls under attack." if len(found) > 1 else "The detector falls under attack."
    elif not fallen:
        opening = "No detector was brought down."
    elif len(sound) == 1 and not doubtful:
        opening = f"Only {_on(sound[0], numbers)} stays above a coin toss under attack."
    else:
        opening = f"{len(fallen)} of {what[1]} fall to a coin toss or worse under attack."
    if doubtful:
        opening += f" {count(len(doubtful), 'attacked number')} cannot be believed."
    return opening


def _what(numbers: Numbers, n: int) -> tuple[str, str]:
    if len(numbers.models) == 1 and len(numbers.families) == 1:
        return "Every detector", count(n, "detector")
    if len(numbers.families) == 1:
        return "Every detector on every network", f"{n} detector–network pairs"
    return "Every detector, on every network and at every budget,", f"{n} attacked cases"


def _on(standing: Standing, numbers: Numbers) -> str:
    network = f" on {shown(standing.attacked.model)}" if len(numbers.models) > 1 else ""
    return standing.name + network


def sentences(rows: Iterable[Row]) -> list[Sentence]:
    """Everything worth saying, network by network, worst first."""
    numbers = Numbers(rows)
    if not numbers.families:
        return [_benign(numbers, model) for model in numbers.models if numbers.detectors(model)]
    found: list[Sentence] = []
    for family in numbers.families:
        if len(numbers.models) > 1:
            found += _between(numbers, family)
        for model in numbers.models:
            found += _network(numbers, model, family)
    return found


def _benign(numbers: Numbers, model: str) -> Sentence:
    best = max(
        (row for d in numbers.detectors(model) if (row := lowest(numbers.get("auroc", model, d)))),
        key=lambda row: row.value,
        default=None,
    )
    text = f"Nothing was attacked on {shown(model)}: its numbers hold for benign images only."
    if best:
        text += f" The best of them is {shown(best.detector)}, with an AUROC of {number(best.value)}."
    return Sentence("untested", text, model)


def _network(numbers: Numbers, model: str, family: str) -> list[Sentence]:
    found = standings(numbers, model, family)
    by_kind = {kind: [s for s in found if s.kind == kind] for kind in LABELS}
    said = []
    if fallen := by_kind["fell"]:
        said.append(Sentence("fell", _fallen(fallen[0]), model))
        if others := [_arrow(s) for s in fallen[1:]]:
            said.append(Sentence("fell", f"Also fallen on {shown(model)}: {listed(others)}.", model))
    said += [Sentence("unbelieved", _unbelieved(s), model) for s in by_kind["unbelieved"]]
    if weak := by_kind["weak"]:
        left = listed([_arrow(s) for s in weak])
        said.append(Sentence("weak", f"Weakened on {shown(model)}: {left}.{_caution(weak)}", model))
    if holds := by_kind["holds"]:
        left = listed([_arrow(s) for s in reversed(holds)])
        text = f"On {shown(model)}, against {holds[0].budget.words()}: {left}.{_caution(holds)}"
        said.append(Sentence("holds", text, model))
    said += _best(found, model)
    attacked = {s.attacked.detector for s in found}
    if left_out := [shown(d) for d in numbers.detectors(model) if d not in attacked]:
        text = f"Not attacked on {shown(model)} ({budget(numbers.largest(family)[0]).label()}): "
        said.append(Sentence("untested", text + f"{listed(left_out)}.", model))
    return said


def _best(found: list[Standing], model: str) -> list[Sentence]:
    """The detector to take if one must be taken."""
    believed = [s for s in found if s.believed]
    if not believed:
        text = f"No attacked number on {shown(model)} can be believed, so none of its detectors can be recommended."
        return [Sentence("unbelieved", text, model)] if found else []
    best = believed[-1]
    if best.kind == "fell":
        text = f"No detector on {shown(model)} survives: the best in the worst case, {best.name}, is left with an AUROC of {number(best.attacked.value)}."
    else:
        text = f"Best in the worst case on {shown(model)}: {best.name}, which keeps an AUROC of {number(best.attacked.value)}{_clean(best)}."
    return [Sentence(best.kind, text, model)]


def _fallen(s: Standing) -> str:
    row = s.attacked
    before = f"from {number(s.clean.value)} to " if s.clean else "to "
    text = (
        f"Do not trust {s.name} on {shown(row.model)}: {s.budget.words()} brings its AUROC "
        f"{before}{number(row.value)} (outside images: {shown(row.dataset)})."
    )
    if row.verdict == "fail":
        return text + (
            f" The attack failed its own checks{_why(s)}, so {number(row.value)} itself is not to be "
            "believed: the truth may be lower still."
        )
    return text + _caution([s])


def _unbelieved(s: Standing) -> str:
    row = s.attacked
    return (
        f"Do not believe the attacked AUROC of {number(row.value)} of {s.name} on {shown(row.model)}: the "
        f"attack failed its own checks{_why(s)}. Treat the detector as untested."
    )


def _caution(found: list[Standing]) -> str:
    text = ""
    if warned := [s for s in found if s.attacked.verdict == "warn"]:
        reasons = list(dict.fromkeys(reason for s in warned for reason in s.reasons))
        why = f" ({listed(reasons)})" if reasons else ""
        whose = "The attack" if len(found) == 1 else f"The attack on {listed([s.name for s in warned])}"
        text += f" {whose} raised a warning{why}: a better one may go lower."
    for side in ("outside", "inside"):
        if one := [s.name for s in found if s.attacked.side == side]:
            who = "" if len(found) == 1 else f" for {listed(one)}"
            text += f" Only {side} images were attacked{who}; with both sides attacked it can only be lower."
    return text


def _why(s: Standing) -> str:
    return f" ({listed(list(s.reasons))})" if s.reasons else ""


def _arrow(s: Standing) -> str:
    if not s.clean:
        return f"{s.name} ({number(s.attacked.value)})"
    return f"{s.name} ({number(s.clean.value)} → {number(s.attacked.value)})"


def _clean(s: Standing) -> str:
    return f" ({number(s.clean.value)} without an attack)" if s.clean else ""


def _between(numbers: Numbers, family: str) -> list[Sentence]:
    """What another network buys, and what it costs."""
    best = [
        believed[-1]
        for model in numbers.models
        if (believed := [s for s in standings(numbers, model, family) if s.believed])
    ]
    if len(best) < 2:
        return []
    low, high = (f(best, key=lambda s: s.attacked.value) for f in (min, max))
    a, b = low.attacked, high.attacked
    if b.value - a.value < 0.05:
        text = f"What hardening buys: little. At {high.budget.label()} the best worst-case AUROC is about the same on every network ({number(a.value)} to {number(b.value)})."
        return [Sentence("compare", text)]
    text = (
        f"What hardening buys: going from {shown(a.model)} to {shown(b.model)} lifts the best worst-case "
        f"AUROC at {high.budget.label()} from {number(a.value)} ({low.name}) to {number(b.value)} ({high.name})"
    )
    before, after = numbers.accuracy(a.model), numbers.accuracy(b.model)
    if before and after:
        text += f"; the accuracy on clean images goes from {number(before.value)} to {number(after.value)}"
    return [Sentence("compare", text + ".")]
