"""A CSV log of the rejected share over time, to detect drift of the input."""

import csv
import io
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rood.errors import ResultsError, expect
from rood.evaluation.store import readable_errors
from rood.guard.calibration import Calibration
from rood.metrics import wilson

COLUMNS = ("time", "images", "rejected", "share", "low", "high", "expected", "alarm")
HEAD = ",".join(COLUMNS).encode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass
class DriftLog:
    """One row per `window` of images: the rejected share with its 95 % interval.

    alarm is "more" or "fewer" if that interval lies beyond the 95 % interval of the calibrated
    rate, so that a threshold set on few images raises no false alarms. Without drift, about one
    window in forty says "more" after a calibration on many images, and fewer after one on few.
    """

    path: Path
    calibration: Calibration
    window: int = 200
    clock: Callable[[], str] = _now
    _seen: list[bool] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        expect(self.window >= 1, "at least one image per window", self.window)
        with readable_errors(self.path), self.path.open("a+b") as file:
            file.seek(0)
            head = file.readline(1000)
            ours = head.rstrip() == HEAD or HEAD.startswith(head)
            if ours:  # remove a row that a full disk or a kill has cut short
                file.truncate((head + file.read()).rfind(b"\n") + 1)
            begun = file.seek(0, os.SEEK_END) > 0
        if not ours:
            raise ResultsError(
                f"expected a drift log in {str(self.path)!r} to continue, got another file: "
                "choose another name"
            )
        if not begun:
            self._append(COLUMNS)

    def see(self, accept: Iterable[bool]) -> None:
        """Add decisions in the order in which they were made."""
        self._seen += [bool(a) for a in accept]
        while len(self._seen) >= self.window:
            self._row(self._seen[: self.window])
            self._seen = self._seen[self.window :]

    def close(self) -> None:
        """Write the last, incomplete window."""
        if self._seen:
            self._row(self._seen)
        self._seen = []

    def _row(self, accept: list[bool]) -> None:
        n, rejected = len(accept), len(accept) - sum(accept)
        share, low, high = wilson(rejected / n, n)
        expected = self.calibration.deployed
        alarm = "more" if low > expected.high else "fewer" if high < expected.low else ""
        shares = (f"{v:.4f}" for v in (share, low, high, expected.value))
        self._append((self.clock(), n, rejected, *shares, alarm))

    def _append(self, row: Iterable[object]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerow(row)
        with readable_errors(self.path), self.path.open("ab") as file:
            file.write(text.getvalue().encode())
            file.flush()
            os.fsync(file.fileno())
