"""The share rejected over time, as a table that grows: does the world still look as it did?"""

import csv
import io
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rood.errors import InputError, ResultsError
from rood.evaluation.store import said_plainly
from rood.guard.calibration import Calibration
from rood.metrics import wilson

COLUMNS = ("time", "images", "rejected", "share", "low", "high", "expected", "alarm")
HEAD = ",".join(COLUMNS).encode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass
class DriftLog:
    """One row for each `window` of images: the share rejected with its 95 % interval.

    alarm is "more" or "fewer" where that interval lies beyond the one in which the calibrated rate
    is known to lie, so that a threshold from few images does not cry wolf. Without drift, about one
    window in forty says "more" where the calibration was large, and fewer where it was not.
    """

    path: Path
    calibration: Calibration
    window: int = 200
    clock: Callable[[], str] = _now
    _seen: list[bool] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.window < 1:
            raise InputError(f"expected at least one image a window, got {self.window}")
        with said_plainly(self.path), self.path.open("a+b") as file:
            file.seek(0)
            head = file.readline(1000)
            ours = head.rstrip() == HEAD or HEAD.startswith(head)
            if ours:  # without a row that a full disk or a kill cut short
                file.truncate((head + file.read()).rfind(b"\n") + 1)
            begun = file.seek(0, os.SEEK_END) > 0
        if not ours:
            raise ResultsError(
                f"expected a drift log in {str(self.path)!r} to go on with, got another file: "
                "choose another name"
            )
        if not begun:
            self._append(COLUMNS)

    def see(self, accept: Iterable[bool]) -> None:
        """Take in decisions, in the order in which they were made."""
        self._seen += [bool(a) for a in accept]
        while len(self._seen) >= self.window:
            self._row(self._seen[: self.window])
            self._seen = self._seen[self.window :]

    def close(self) -> None:
        """Write down what does not fill a window."""
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
        with said_plainly(self.path), self.path.open("ab") as file:
            file.write(text.getvalue().encode())
            file.flush()
            os.fsync(file.fileno())
