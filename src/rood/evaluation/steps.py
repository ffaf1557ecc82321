"""How far a run is: the work that is done, and what is under way."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Generic, TypeVar

from rood.evaluation.rows import Row

UNDER_WAY = 0.98  # most of a task's work that counts before it ends
EVERY = 0.1  # seconds between two calls of a listener

K = TypeVar("K")
Tick = Callable[[float], None]  # how far a task is, in any unit


@dataclass(frozen=True)
class Step:
    """Progress of a run, in a measure that grows about evenly with time, and rows just written."""

    label: str  # what is under way
    done: float
    total: float
    rows: tuple[Row, ...] = ()
    meter: "Meter[Any] | None" = None  # tells its listeners what happens before the next step


@dataclass
class Meter(Generic[K]):
    """Work in any unit: whoever does a task says how far it is, and listeners hear of it."""

    total: float
    weight: Callable[[K], float]  # of a task
    ticks: Callable[[K], float]  # that a task should take, in the unit of `part`
    label: Callable[[K], str]
    clock: Callable[[], float] = monotonic
    listeners: list[Callable[[Step], None]] = field(default_factory=list)
    done: float = 0.0  # in tasks that have ended
    _parts: dict[K, float] = field(default_factory=dict)  # ticks of tasks under way
    _expected: float = 0.0  # ticks of tasks that have ended
    _taken: float = 0.0  # ... and those that they took
    _now: str = ""

    def __post_init__(self) -> None:
        self.begun = self._told = self.clock()

    def part(self, task: K, ticks: float) -> None:
        """How far a task under way is; 0: it begins."""
        begins = task not in self._parts
        self._parts[task] = ticks
        now = self.clock()
        if begins or now - self._told >= EVERY:
            self._told, self._now = now, self.label(task)
            step = self.step()
            for listener in self.listeners:
                listener(step)

    def whole(self, task: K) -> None:
        """A task has ended."""
        if taken := self._parts.pop(task, 0.0):
            self._expected += self.ticks(task)
            self._taken += taken
        self.done += self.weight(task)

    def ended(self) -> None:
        """Nothing more will be done: what is done is all."""
        self._parts.clear()
        self.total = self.done

    def reached(self) -> float:
        """Work done, in tasks under way too."""
        return self.done + sum(self.weight(t) * self._share(t) for t in self._parts)

    def _share(self, task: K) -> float:
        # most attacks stop early: a task should take the share of its ticks that others took
        usual = self._taken / self._expected if self._expected else 1.0
        return min(UNDER_WAY, self._parts[task] / max(usual * self.ticks(task), 1e-9))

    def step(self, label: str = "", rows: tuple[Row, ...] = ()) -> Step:
        """The state of the run."""
        return Step(label or self._now, self.reached(), self.total, rows, self)
