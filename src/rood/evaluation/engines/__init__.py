"""Where the tasks of an audit run: in this process, or on the workers of a Ray cluster.

Both run the same tasks, and the order in which these finish does not matter.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from rood.errors import InputError
from rood.evaluation.plan import Plan
from rood.evaluation.steps import Meter
from rood.evaluation.tasks import Found, Task
from rood.registry import unknown

# takes tasks, gives each back with what it found, in any order; tells the meter how far each is
Perform = Callable[[Iterable[Task], Meter[Task]], Iterator[tuple[Task, dict[str, Found]]]]


class Engine(ABC):
    """Where tasks run."""

    @abstractmethod
    def opened(self, plan: Plan) -> AbstractContextManager[Perform]:
        """Get ready for the tasks of a plan; release everything at the end of the block."""


class Local(Engine):
    """One task after the other, in this process."""

    @contextmanager
    def opened(self, plan: Plan) -> Iterator[Perform]:
        """A plain loop."""

        def perform(
            tasks: Iterable[Task], meter: Meter[Task]
        ) -> Iterator[tuple[Task, dict[str, Found]]]:
            for task in tasks:
                meter.part(task, 0.0)
                yield task, task.do(plan, partial(meter.part, task))

        yield perform


def pick(name: str, workers: int | None, address: str | None, device: str) -> Engine:
    """The engine with this name; `device` as in an audit's settings."""
    from rood.evaluation.engines.ray import Ray

    if name not in ("local", "ray"):
        raise unknown("engine", name, ("local", "ray"))
    if name == "ray":
        kind = None if device == "auto" else device.partition(":")[0]
        return Ray(workers=workers, address=address, device=kind)
    if workers is not None or address is not None:
        raise InputError("expected --engine ray beside --workers and --address, got local")
    return Local()
