"""What an audit found, in one sentence and in at most four: a pure function of its rows."""

from rood.evaluation.rows import Row
from rood.report.by_network import between, by_network
from rood.report.numbers import Numbers
from rood.report.outcomes import Outcome, Sentence, all_outcomes, arrow, caution, why
from rood.report.words import count, listed, number, percent, shown

MANY_PASS = 0.2  # share of clean OOD images let through that is worth a finding
MOST_FINDINGS = 4  # on the first screen; the others are folded


def headline(numbers: Numbers) -> str:
    """The whole audit in one sentence."""
    found = all_outcomes(numbers)
    if not numbers.models:
        return "There are no numbers to judge yet."
    if not found:
        return "No attack was run: nothing here says how these detectors stand up to an attacker."
    fallen = [o for o in found if o.kind == "fell"]
    doubtful = [o for o in found if o.kind == "unbelieved"]
    every, cases = _what(numbers, len(found))
    if len(fallen) == len(found):
        opening = f"{every} falls under attack."
    elif len(doubtful) == len(found):
        return "No attacked number can be believed: the attacks failed their own checks."
    elif not fallen:
        opening = _standing(numbers, [o for o in found if o.believed])
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


def _standing(numbers: Numbers, believed: list[Outcome]) -> str:
    """Where none has fallen: the one that comes closest, since weakened is not safe either."""
    worst = min(believed, key=lambda o: o.attacked.value)
    name = f"{worst.name}{_where(numbers, worst)}"
    if worst.kind == "holds":
        return f"No detector falls: under attack the lowest AUROC is {worst.value}, of {name}."
    before = f" from {number(worst.clean.value)}" if worst.clean else ""
    fall = f"the attack takes {name}{before} to {worst.value}"
    return f"No detector falls to a coin toss, but {fall}."


def _what(numbers: Numbers, n: int) -> tuple[str, str]:
    """All attacked cases as the subject of a sentence, and their number."""
    if n == 1:
        return "The detector", "1 detector"
    if len(numbers.families) > 1:
        return "Every detector, on every network and at every budget,", f"{n} attacked cases"
    if len(numbers.models) > 1:
        return "Every detector on every network", f"{n} detector–network pairs"
    return "Every detector", count(n, "detector")


def top(numbers: Numbers) -> list[Sentence]:
    """At most four findings on all networks together, the most important first."""
    if not numbers.families:
        return by_network(numbers)[:MOST_FINDINGS]
    found = all_outcomes(numbers)
    said = _all_fallen(numbers, [o for o in found if o.kind == "fell"])
    said += _all_unbelieved(numbers, [o for o in found if o.kind == "unbelieved"])
    said += _to_take(numbers, found)
    if len(numbers.models) > 1:
        said += [s for family in numbers.families for s in between(numbers, family)][:1]
    return (said + _let_through(numbers))[:MOST_FINDINGS]


def _all_fallen(numbers: Numbers, fallen: list[Outcome]) -> list[Sentence]:
    if not fallen:
        return []
    lost = lambda o: (o.clean.value if o.clean else 1.0) - o.attacked.value
    worst = sorted(fallen, key=lost, reverse=True)
    cases = [f"{arrow(o)}{_where(numbers, o)}" for o in worst]
    if len(fallen) == 1:
        lead = f"Do not trust {worst[0].name}{_where(numbers, worst[0])}:"
    else:
        lead = f"Do not trust {len(fallen)} of {_what(numbers, len(all_outcomes(numbers)))[1]}:"
    budgets = list(dict.fromkeys(o.budget.label() for o in worst))
    rest = f"at {listed(budgets)} the AUROC falls to a coin toss or worse, "
    return [Sentence("fell", lead, f"{rest}as of {listed(cases, 3)}.")]


def _all_unbelieved(numbers: Numbers, doubtful: list[Outcome]) -> list[Sentence]:
    if not doubtful:
        return []
    cases = listed([f"{o.value} of {o.name}{_where(numbers, o)}" for o in doubtful], 3)
    reasons = dict.fromkeys(r for o in doubtful for r in o.reasons)
    many = "this attacked AUROC" if len(doubtful) == 1 else f"{len(doubtful)} attacked AUROCs"
    rest = f"{cases}: the attack failed its own checks{why(list(reasons)[:3])}."
    return [Sentence("unbelieved", f"Do not believe {many}:", rest)]


def _to_take(numbers: Numbers, found: list[Outcome]) -> list[Sentence]:
    """The detector to take if one must be taken; of several norms, by the worst of them."""
    worst: dict[tuple[str, str], Outcome] = {}
    for o in found:
        who = (o.attacked.model, o.attacked.detector)
        if who not in worst or _rank(o) < _rank(worst[who]):
            worst[who] = o
    believed = [o for o in worst.values() if o.believed]
    if not believed:
        return []
    best = max(believed, key=lambda o: o.attacked.value)
    clean = f" ({number(best.clean.value)} without an attack)" if best.clean else ""
    if best.kind == "fell":
        rest = f"the best in the worst case, {best.name}{_where(numbers, best)}, is left with an "
        return [Sentence("fell", "Nothing survives:", f"{rest}AUROC of {best.value}{clean}.")]
    lead = f"Best in the worst case: {best.name}{_where(numbers, best)}"
    rest = f"keeps an AUROC of {best.value}{clean}.{_shares(numbers, best.attacked)}"
    return [Sentence(best.kind, lead, rest + caution([best]))]


def _rank(o: Outcome) -> tuple[bool, float]:
    """Doubtful ones first, then by AUROC."""
    return o.believed, o.attacked.value


def _shares(numbers: Numbers, row: Row) -> str:
    """What the deployed threshold of a detector lets through."""
    pair = numbers.let_through(row.model, row.detector, [row.scenario])
    if pair is None:
        return ""
    clean, attacked = pair
    under = "" if attacked is None else f", and {percent(attacked.value)} under attack"
    return f" Its threshold lets {percent(clean.value)} of clean OOD images through{under}."


def _let_through(numbers: Numbers) -> list[Sentence]:
    """Detectors whose threshold fails without any attack."""
    rows = [
        (pair[0], model, detector)
        for model in numbers.models
        for detector in numbers.detectors(model)
        if (pair := numbers.let_through(model, detector)) and pair[0].value >= MANY_PASS
    ]
    if not rows:
        return []
    rows.sort(key=lambda case: -case[0].value)
    on = lambda model: f" on {shown(model)}" if len(numbers.models) > 1 else ""
    cases = [f"{shown(d)}{on(m)} lets {percent(r.value)} through" for r, m, d in rows]
    lead = "Without any attack, thresholds let OOD images through:"
    return [Sentence("threshold", lead, f"{listed(cases, 3)}.")]


def _where(numbers: Numbers, o: Outcome) -> str:
    """On which network, and within which budget, where there are several."""
    on = f" on {shown(o.attacked.model)}" if len(numbers.models) > 1 else ""
    return f"{on} at {o.budget.label()}" if len(numbers.families) > 1 else on
