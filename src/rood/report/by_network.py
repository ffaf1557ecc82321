"""All findings, network by network, worst first: what the page folds."""

from rood.report.numbers import Numbers, highest, lowest
from rood.report.outcomes import LABELS, Kind, Outcome, Sentence, arrow, caution, outcomes, why
from rood.report.words import listed, number, shown


def by_network(numbers: Numbers) -> list[Sentence]:
    """Everything worth saying, network by network, worst first."""
    if not numbers.families:
        return [_not_attacked(numbers, m) for m in numbers.models if numbers.detectors(m)]
    found: list[Sentence] = []
    for family in numbers.families:
        for model in numbers.models:
            found += _network(numbers, model, family)
        if len(numbers.models) > 1:
            found += between(numbers, family)
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
        if others := [arrow(o) for o in fallen[1:]]:
            said.append(Sentence("fell", f"Also fallen on {shown(model)}:", f"{listed(others)}."))
    said += [_unbelieved(o) for o in by_kind["unbelieved"]]
    leads: dict[Kind, str] = {"weak": "Weakened but not fallen", "holds": "Still standing"}
    for kind, lead in leads.items():
        if group := by_kind[kind][::-1]:
            rest = f"{listed([arrow(o) for o in group])}, against {group[0].budget.words()}."
            said.append(Sentence(kind, f"{lead} on {shown(model)}:", rest + caution(group)))
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
        rest += caution([o])
    else:
        rest += f" The attack failed its own checks{why(o.reasons)}, so {o.value} itself is not "
        rest += "to be believed: the true one may be lower still."
    return Sentence("fell", f"Do not trust {o.name} on {shown(row.model)}:", rest)


def _unbelieved(o: Outcome) -> Sentence:
    model = shown(o.attacked.model)
    lead = f"Do not believe the attacked AUROC of {o.value} of {o.name} on {model}:"
    rest = f"the attack failed its own checks{why(o.reasons)}. Treat the detector as untested."
    return Sentence("unbelieved", lead, rest)


def between(numbers: Numbers, family: str) -> list[Sentence]:
    """Which network resists best, and what that costs."""
    best = [
        believed[-1]
        for model in numbers.models
        if (believed := [o for o in outcomes(numbers, model, family) if o.believed])
    ]
    if len(best) < 2:
        return []
    low, high = (f(best, key=lambda o: o.attacked.value) for f in (min, max))
    a, b = low.attacked, high.attacked
    label = high.budget.label()
    if b.value - a.value < 0.05:
        rest = f"at {label} the best worst-case AUROC is about the same on every network "
        lead = "No network resists better:"
        return [Sentence("compare", lead, f"{rest}({low.value} to {high.value}).")]
    lead = f"{shown(b.model)} resists better than {shown(a.model)}:"
    rest = f"from {shown(a.model)} to {shown(b.model)} the best worst-case AUROC at "
    rest += f"{label} goes from {low.value} ({low.name}) to {high.value} ({high.name})"
    before, after = numbers.accuracy(a.model), numbers.accuracy(b.model)
    if before and after:
        pair = [number(before.value), number(after.value)]
        cost = f"stays at {pair[0]}" if pair[0] == pair[1] else f"goes from {pair[0]} to {pair[1]}"
        rest += f"; the accuracy on clean images {cost}"
    return [Sentence("compare", lead, rest + ".")]
