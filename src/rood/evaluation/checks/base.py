"""What a check is: one question about an attack, with the limits and the wording of its flag."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rood import metrics

Side = Literal["none", "inside", "outside", "both"]  # which one is attacked
Verdict = Literal["-", "pass", "warn", "fail"]  # "-": nothing was attacked, nothing to judge
Arrays = Mapping[str, NDArray[Any]]
Scores = NDArray[np.floating]


class Wording(NamedTuple):
    """What the page and docs/flags.md say about a flag."""

    title: str
    because: str  # the reason, inside a sentence
    meaning: str
    advice: str
    share: bool = False  # whether the evidence is a share of the images


@dataclass(frozen=True)
class Flag:
    """The result of one check: the evidence as a number, and its verdict on the attack."""

    name: str
    value: float
    verdict: Verdict


@dataclass(frozen=True)
class AttackedSet:
    """The arrays of one attacked image set, and those of the set that it is ranked against."""

    arrays: Arrays
    other: Arrays

    def up(self, scores: Scores) -> Scores:
        """Scores turned so that the attacker wants them high."""
        return float(self.arrays["sign"][0]) * scores.astype(np.float64)

    def values(self, name: str) -> Scores:
        """The same of one array, cut where an image is done: the rest counts neither way."""
        enough = float(self.arrays["enough"][0]) if "enough" in self.arrays else np.inf
        return np.minimum(self.up(self.arrays[name]), enough)

    def gains(self) -> tuple[Scores, Scores]:
        """How far each image got: at the point found for the score itself, and at the best one."""
        before = self.values("before")
        return self.values("direct") - before, self.values("scores") - before

    def moved(self, a: str, b: str) -> float:
        """Mean distance between two scores of the same images; equal infinities have none."""
        first, second = self.arrays[a], self.arrays[b]
        distance = np.zeros(len(first))
        np.subtract(first, second, where=first != second, out=distance)
        return float(np.abs(distance).mean())

    def spread(self) -> float:
        """Standard deviation of the finite clean scores, kept above 0; 1 where there are none."""
        clean = self.arrays["before"]
        finite = clean[np.isfinite(clean)].astype(np.float64)
        if not len(finite):
            return 1.0
        return float(finite.std()) + 1e-6 * float(np.abs(finite).mean()) + 1e-12


@dataclass(frozen=True)
class Case:
    """Everything that a check may look at: one detector, OOD set, threat and attacked side."""

    sets: tuple[Arrays, Arrays]  # ID and OOD, attacked or clean as `side` says
    clean: tuple[Scores, Scores]  # ID and OOD before the attack
    aurocs: Sequence[float]  # clean, then for each eps up to this one
    norm: str
    eps: float
    side: Side
    sides: Sequence[Side]  # all that the audit attacks


class Check(ABC):
    """One check. The docstring of a subclass says what it measures; docs/flags.md prints it."""

    place: ClassVar[int] = 100  # of its row among the flags
    warn: ClassVar[float]  # evidence above this is a warning
    fail: ClassVar[float]  # evidence above this is a failure; inf: never
    wording: ClassVar[Wording]

    @property
    def name(self) -> str:
        """The registry name: that of the file."""
        return type(self).__module__.rpartition(".")[2]

    @abstractmethod
    def evidence(self, case: Case) -> float | None:
        """The number that is compared with the limits; None where the check does not apply."""

    def verdict(self, value: float, case: Case) -> Verdict:
        """What the evidence allows to believe."""
        return "fail" if value > self.fail else "warn" if value > self.warn else "pass"

    def flag(self, case: Case) -> Flag | None:
        """The graded evidence; None where the check does not apply."""
        value = self.evidence(case)
        return None if value is None else Flag(self.name, value, self.verdict(value, case))


class SetCheck(Check):
    """A check of each attacked set by itself. The worse set counts: neither hides the other."""

    # a set without this array was not attacked, or comes from a rood older than the check
    needs: ClassVar[str] = "control"

    @abstractmethod
    def measure(self, attacked: AttackedSet) -> float:
        """The evidence of one attacked set."""

    def evidence(self, case: Case) -> float | None:
        pairs = (AttackedSet(*case.sets), AttackedSet(*reversed(case.sets)))
        return max((self.measure(s) for s in pairs if self.needs in s.arrays), default=None)


def auroc_left(values: Scores, other: Scores) -> float:
    """AUROC of an attacked set against the other, both turned so that the attacker aims high."""
    return float(metrics.auroc(inside=values, outside=other))
