"""What a check is: one question about an attack, with the limits and the wording of its flag."""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

from rood import metrics

Side = Literal["none", "inside", "outside", "both"]  # which one is attacked
Verdict = Literal["-", "pass", "warn", "fail"]  # "-": nothing was attacked, nothing to judge
Arrays = Mapping[str, NDArray[Any]]
Scores = NDArray[np.floating]
Faults = NDArray[np.bool_]

VERDICTS: tuple[Verdict, ...] = ("-", "pass", "warn", "fail")  # the worst last
MOST = 10.0  # standard deviations that the score of one image counts for at most
NOTICEABLE = 0.02  # of an AUROC
STANDARD = 2  # the tier of that name, as `rood.evaluation.probes.TIERS` counts them
LEVEL = 0.05  # probability that chance alone raises an alarm on a row
TESTS = 40  # of a row at most: 20 checks of two sets


class Wording(NamedTuple):
    """What the page and docs/understand/flags.md say about a flag."""

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
    """The arrays of one attacked image set, and those of the set that it is ranked against.

    What is computed of scores s does not depend on their unit: a s + b gives the same for a > 0.
    """

    arrays: Arrays
    other: Arrays
    clean: Scores  # of the set without an attack, measured before it

    @property
    def stochastic(self) -> bool:
        """Whether the detector is declared so: then scores are means over several calls."""
        return bool(np.any(self.arrays.get("stochastic", False)))

    @property
    def enough(self) -> float:
        """Where an image is done, in the attacker's direction."""
        return float(self.arrays["enough"][0]) if "enough" in self.arrays else np.inf

    def up(self, scores: Scores) -> Scores:
        """Scores turned so that the attacker wants them high."""
        return float(self.arrays["sign"][0]) * scores.astype(np.float64)

    def values(self, *names: str) -> Scores:
        """The same of the first of these arrays that there is, cut where an image is done.

        What lies beyond counts neither way.
        """
        name = next(n for n in names if n in self.arrays)
        return np.minimum(self.up(self.arrays[name]), self.enough)

    def gains(self) -> tuple[Scores, Scores]:
        """How far each image got: at the point found for the score itself, and at the best one."""
        before = self.values("before")
        best = self.values("alone", "scores")
        return difference(self.values("direct"), before), difference(best, before)

    def fall(self, start: str, *ends: str) -> float:
        """Fall of the AUROC, against the other side as it is, from one array to the best of all."""
        other, after = self.up(self.other["scores"]), self.values(start)
        best = np.maximum.reduce([after, *map(self.values, ends)])
        return max(0.0, auroc_left(after, other) - auroc_left(best, other))

    def moved(self, first: Scores, second: Scores) -> float:
        """Mean distance between two scores of the same images, in units of `spread`."""
        distance = np.abs(difference(first, second))
        with np.errstate(divide="ignore"):
            np.divide(distance, self.spread(), where=distance > 0, out=distance)
        return float(np.minimum(distance, MOST).mean())

    def on_the_way(self, name: str) -> list[NDArray[Any]]:
        """An array of the control images half way to the attacked image and there, where known."""
        return list(self.arrays[name].T[1:]) if name in self.arrays else []

    def unfinished(self) -> Faults:
        """The control images that have not reached what is enough."""
        return self.values("control_after") < self.enough

    def stuck(self) -> Faults:
        """The control images of these whose score the attack did not raise: it never climbed."""
        before = self.values("control_before")
        return self.unfinished() & (self.values("control_after") <= before)

    @property
    def thorough(self) -> bool:
        """Whether `WorstOf` of the tier standard or higher was made, on the few images at least."""
        tiers = (self.arrays[name] for name in ("tier", "more_tier") if name in self.arrays)
        return any(len(tier) and int(tier.min()) >= STANDARD for tier in tiers)

    def spread(self) -> float:
        """Standard deviation of finite clean scores; with the attacked ones if all are equal."""
        clean = self.arrays["before"].astype(np.float64)
        for scores in (clean, np.concatenate([clean, self.arrays["scores"]])):
            finite = scores[np.isfinite(scores)]
            if len(finite) and np.ptp(finite) > 0:
                return float(finite.std())
        return 0.0


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
    largest: "Case | None" = None  # at the largest eps of the norm, where more is measured
    certified: float | None = None  # a proved lower bound of the AUROC, where there is one

    def unbeaten(self) -> bool:
        """Whether the attack was thorough, and neither random search, nor Square, nor a further
        attack with gradients lowered the AUROC of the examined images noticeably.
        """
        sets = (self.largest or self).attacked("blind")
        return bool(sets) and all(
            s.thorough
            and s.fall("control_after", "control") < NOTICEABLE
            and s.fall("few_after", "blind", "more") < NOTICEABLE
            for s in sets
        )

    def attacked(self, needs: str) -> list[AttackedSet]:
        """The attacked sets of which an array is known."""
        pairs = zip(self.sets, reversed(self.sets), self.clean, strict=True)
        return [AttackedSet(*pair) for pair in pairs if needs in pair[0]]


class Check(ABC):
    """One check; docs/understand/flags.md prints what the docstring of a subclass says."""

    place: ClassVar[int] = 100  # of its row among the flags
    warn: ClassVar[float]  # evidence above this is a warning
    fail: ClassVar[float]  # evidence above this is a failure; inf: never
    tested: ClassVar[bool] = False  # whether "above" means significantly above
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
        return self.limited(value)

    def limited(self, value: Any, above: Callable[[Any, float], bool] = operator.gt) -> Verdict:
        """The verdict by the limits that the evidence is `above`."""
        return "fail" if above(value, self.fail) else "warn" if above(value, self.warn) else "pass"

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

    def grade(self, attacked: AttackedSet) -> Verdict:
        """The verdict on one attacked set."""
        return self.limited(self.measure(attacked))

    def evidence(self, case: Case) -> float | None:
        return max(map(self.measure, case.attacked(self.needs)), default=None)

    def verdict(self, value: float, case: Case) -> Verdict:
        return max(map(self.grade, case.attacked(self.needs)), key=VERDICTS.index)


class ShareCheck(SetCheck):
    """A check whose evidence is the share of images with a fault.

    One image in a few proves little: a limit is passed where the share exceeds it significantly.
    """

    tested = True

    @abstractmethod
    def faults(self, attacked: AttackedSet) -> Sequence[Faults]:
        """Which images have the fault, once or at several places, of which the worst counts."""

    def measure(self, attacked: AttackedSet) -> float:
        return max((float(f.mean()) for f in self.faults(attacked) if len(f)), default=0.0)

    def grade(self, attacked: AttackedSet) -> Verdict:
        found = [self.limited(f, exceeds) for f in self.faults(attacked)]
        return max(found, key=VERDICTS.index, default="pass")


def exceeds(faults: Faults, share: float) -> bool:
    """Whether more images have a fault than a share of them: exact binomial test, one-sided.

    The level is that of one row, divided by the number of tests that may be made for it.
    """
    count = int(faults.sum())
    return share < 1 and count > 0 and float(bdtrc(count - 1, len(faults), share)) < LEVEL / TESTS


def difference(a: Scores, b: Scores) -> Scores:
    """a - b; equal infinities differ by 0."""
    found = np.zeros(np.broadcast(a, b).shape)
    np.subtract(a, b, where=a != b, out=found, dtype=np.float64)
    return found


def typical(gains: Scores) -> float:
    """Mean size of the finite ones; 0 where there are none."""
    finite = gains[np.isfinite(gains)]
    return float(np.abs(finite).mean()) if len(finite) else 0.0


def auroc_left(values: Scores, other: Scores) -> float:
    """AUROC of an attacked set against the other, both turned so that the attacker aims high."""
    return float(metrics.auroc(inside=values, outside=other))
