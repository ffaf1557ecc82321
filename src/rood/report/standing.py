"""Where one detector on one network stands against one attacker."""

from dataclasses import dataclass
from typing import Literal

from rood.evaluation.results import Row
from rood.report.flags import explain
from rood.report.numbers import Budget, Numbers, budget, lowest
from rood.report.words import shown

COIN_TOSS = 0.5  # at or below: the detector has fallen
HOLDS = 0.8  # at or above: the detector holds
ESCAPE = "flag_left_the_threat_model"

Kind = Literal["fell", "weak", "holds", "unbelieved", "untested", "compare"]


@dataclass(frozen=True)
class Standing:
    """An attacked number, the clean one beside it, and whether to believe it."""

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
        and row.side in (attacked.side, "none")
        and row.dataset in (attacked.dataset, "")
        and row.verdict == attacked.verdict in ("warn", "fail")
    ]
    reasons = tuple(dict.fromkeys(explain(metric).because for metric in findings))
    escaped = attacked.verdict == "fail" and ESCAPE in findings
    return Standing(attacked, lowest(clean), reasons, escaped)
