"""In which order sets are attacked, and what a time limit leaves out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from rood.evaluation.deadline import Deadline
from rood.evaluation.plan import Plan
from rood.evaluation.rows import CLASSES
from rood.evaluation.steps import Meter, Step
from rood.evaluation.tasks import Task
from rood.threat import Threat

Unit = tuple[str, str]  # detector and budget, on all networks and sets: measured whole or not


class OutOfTime(Exception):
    """What is under way would take too long."""


def unit(task: Task) -> Unit:
    """What is left out together with this task."""
    return task.name, str(task.threat)


def pairs(plan: Plan) -> list[tuple[str, str]]:
    """Networks and detectors in their order: with a time limit detector by detector."""
    found = [(m, d) for m, ds in plan.detectors.items() for d in ds]
    if plan.deadline is None:
        return found
    detectors = list(dict.fromkeys(d for _, d in found))
    return sorted(found, key=lambda pair: detectors.index(pair[1]))


def rows_order(plan: Plan) -> list[tuple[str, str]]:
    """Networks and detectors in the order of their rows; "" for what is the network's own.

    Last of all comes `CLASSES`, for how many of the predicted classes are certain.
    """
    last = [] if plan.certify is None else [(m, CLASSES) for m in plan.detectors]
    if plan.deadline is None:
        return [*((m, d) for m, ds in plan.detectors.items() for d in ("", *ds)), *last]
    return [*((m, "") for m in plan.detectors), *pairs(plan), *last]


def in_order(plan: Plan) -> list[tuple[str, str, Threat]]:
    """Network, detector and budget of all attacks, in the order in which they are made.

    A time limit leaves out the last ones. So of each detector the largest budget of a norm comes
    first, on all networks: there the attack itself is examined.
    """
    threats = plan.ordered_threats()
    networks = plan.detectors if plan.certify is not None else ()
    last = [(m, CLASSES, t) for m in networks for t in threats]
    if plan.deadline is None:
        return [*((m, d, t) for m, d in pairs(plan) for t in threats), *last]
    largest = plan.largest()
    threats = [*largest, *(t for t in reversed(threats) if t not in largest)]
    found = [
        (m, d, t)
        for _, group in groupby(pairs(plan), key=lambda pair: pair[1])
        for same in [list(group)]
        for t in threats
        for m, d in same
    ]
    return [*found, *last]


@dataclass
class Schedule:
    """Gives out one unit after the other, as long as the next one will be done in time."""

    deadline: Deadline
    meter: Meter[Task]
    any_whole: bool  # whether a unit is done: the first one is begun in any case
    _left: dict[Unit, int] = field(default_factory=dict)  # tasks that have not ended

    def __post_init__(self) -> None:
        self._begun, self._before = self.deadline.clock(), self.meter.done
        self._given = self._before  # work done once all that was given out has ended

    def given(self, tasks: Sequence[Task]) -> Iterator[Task]:
        """The tasks, until a unit comes that would be late."""
        for name, group in groupby(tasks, key=unit):
            of_unit = list(group)
            whole = self._given + sum(map(self.meter.weight, of_unit))
            if (self._left or self.any_whole) and self._until(whole) > self.deadline.left():
                return
            self._given, self._left[name] = whole, len(of_unit)
            yield from of_unit

    def ended(self, task: Task) -> None:
        """A task has ended."""
        self._left[unit(task)] -= 1
        self.any_whole |= self._left[unit(task)] == 0

    def check(self, _: Step) -> None:
        """At the limit, give up what would overrun it by more than a fifth."""
        if self.deadline.left() <= 0 and self._until(self._given) > self.deadline.grace():
            raise OutOfTime

    def _until(self, work: float) -> float:
        """Seconds until so much work is done, at the speed so far; 0 where none is known."""
        done, passed = self.meter.reached() - self._before, self.deadline.clock() - self._begun
        return (work - self.meter.reached()) * passed / done if done > 0 else 0.0
