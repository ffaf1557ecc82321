"""Who carries out the units of an audit: this process, or the workers of a cluster.

Both do the very same units; the order in which these end changes nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from rood.errors import InputError
from rood.evaluation.plan import Plan
from rood.evaluation.tasks import Found, Work
from rood.registry import unknown

# units in, each with what it came to out, in any order
Results = Callable[[Sequence[Work]], Iterator[tuple[Work, dict[str, Found]]]]


class Engine(ABC):
    """Where units run."""

    @abstractmethod
    def opened(self, plan: Plan) -> AbstractContextManager[Results]:
        """Get ready for the units of a plan; let go at the end of the block."""


def pick(name: str, workers: int | None, address: str | None, device: str) -> Engine:
    """The engine called so; `device` as an audit's settings have it."""
    from rood.evaluation.engines.local import Local
    from rood.evaluation.engines.ray import Ray

    if name not in ("local", "ray"):
        raise unknown("engine", name, ("local", "ray"))
    if name == "ray":
        kind = None if device == "auto" else device.partition(":")[0]
        return Ray(workers=workers, address=address, device=kind)
    if workers is not None or address is not None:
        raise InputError("expected --engine ray beside --workers and --address, got local")
    return Local()
