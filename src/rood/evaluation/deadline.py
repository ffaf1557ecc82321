"""When a run has to end."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic

from rood.errors import InputError

UNITS = {"s": 1, "m": 60, "h": 3600}
PAGE = 5.0  # seconds, at most a tenth of the limit, for the page at the end
OVER = 0.15  # of the limit: what has begun may end so much later; with start and page, a fifth


def seconds(text: str) -> float:
    """Convert "90s", "10m" or "1.5h" to seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text.strip())
    if not match or float(match[1]) == 0:
        raise InputError(f"expected a time such as 90s, 10m or 2h, got {text!r}")
    return float(match[1]) * UNITS[match[2]]


def too_short(asked: str, units: Iterable[tuple[str, str]], to: str = "attack") -> str:
    """What a time limit left out, (detector, budget) each, in a sentence; "" for nothing."""
    by_detector: dict[str, list[str]] = {}
    for detector, budget in units:
        by_detector.setdefault(detector, []).extend([budget] if budget else [])
    said = [f"{d} ({', '.join(some)})" if some else d for d, some in by_detector.items()]
    if not said:
        return ""
    hint = "give more time or name fewer detectors"
    return f"{asked} is too short to {to} {', '.join(said)}: {hint}"


@dataclass(frozen=True)
class Deadline:
    """The time limit of a run, counted from when it was started."""

    asked: str  # as the user wrote it
    begun: float  # on the clock
    clock: Callable[[], float] = monotonic

    def left(self) -> float:
        """Seconds until the attacks should have ended, so that the page is there in time."""
        limit = seconds(self.asked)
        return limit - min(PAGE, limit / 10) - (self.clock() - self.begun)

    def grace(self) -> float:
        """Seconds until they must have ended."""
        return self.left() + OVER * seconds(self.asked)
