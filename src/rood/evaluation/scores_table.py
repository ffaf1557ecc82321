"""scores.csv: one row an attacked image, which a spreadsheet opens and a second run continues."""

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rood._files import write_whole
from rood.errors import ResultsError
from rood.evaluation.store import said_plainly
from rood.metrics import Interval, wilson

COLUMNS = (
    "image",
    "file",
    "source",  # the file it was made of, where there is one
    "label",
    "score_before",
    "score_after",  # of the float image that the attack found
    "score_saved",  # of the image as it was read back from disk
    "norm_saved",
    "accepted_before",
    "accepted_after",  # as saved
)


@dataclass(frozen=True)
class Summary:
    """What the attack did to the images, as saved."""

    n: int
    accepted_before: Interval
    accepted_after: Interval
    shift: float  # the median change of a score


@dataclass(frozen=True)
class ScoresTable:
    """The rows on disk. One that a kill cut short counts as none."""

    path: Path

    def read(self) -> list[dict[str, str]]:
        """Every whole row, in order."""
        if not self.path.exists():
            return []
        with said_plainly(self.path):
            text = self.path.read_text(encoding="utf-8", errors="replace")
        text = text[: text.rfind("\n") + 1]
        names, *rows = list(csv.reader(io.StringIO(text, newline=""))) or [list(COLUMNS)]
        if tuple(names) != COLUMNS:
            raise ResultsError(
                f"expected the scores of attacked images in {self.path}, got another table: "
                "choose another folder"
            )
        return [dict(zip(COLUMNS, row, strict=True)) for row in rows if len(row) == len(COLUMNS)]

    def begin(self, rows: Iterable[Mapping[str, str]]) -> None:
        """The table with these rows and no others."""
        with said_plainly(self.path):
            write_whole(self.path, _lines([COLUMNS, *(tuple(r.values()) for r in rows)]))

    def append(self, rows: Iterable[Sequence[object]]) -> None:
        """Put rows on disk, in order."""
        with said_plainly(self.path), self.path.open("ab") as file:
            file.write(_lines(rows))
            file.flush()
            os.fsync(file.fileno())

    def summary(self) -> Summary:
        """How many are accepted, before and after, and how far scores moved."""
        rows = self.read()
        n = len(rows)
        before, after = (
            wilson(sum(r[column] == "yes" for r in rows) / n, n)
            for column in ("accepted_before", "accepted_after")
        )
        shift = median(float(r["score_saved"]) - float(r["score_before"]) for r in rows)
        return Summary(n, before, after, shift)


def _lines(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
