"""Scores of a folder of images by a guard, one CSV row per file."""

import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import numpy as np
import torch

from rood._files import as_utf8, for_spreadsheets
from rood.data.images import EXTENSIONS, decode, resize
from rood.errors import DataError, expect
from rood.evaluation.steps import Step
from rood.guard.drift import DriftLog
from rood.guard.guard import Guard
from rood.metrics import Interval, wilson
from rood.shapes import Images

COLUMNS = ("file", "label", "class", "score", "accept")


@dataclass
class FolderScores:
    """The images of a folder and its sub-folders, of any size, in order of their names."""

    guard: Guard
    root: Path
    batch_size: int = 64
    skip_bad: bool = False
    files: list[Path] = field(init=False, repr=False)
    skipped: list[str] = field(default_factory=list, init=False)  # unreadable files
    resized: int = field(default=0, init=False)
    scored: int = field(default=0, init=False)
    rejected: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        expect(self.batch_size >= 1, "at least one image per batch", self.batch_size)
        self.files = images_below(self.root)

    def run(self, table: TextIO, drift: DriftLog | None = None) -> Iterator[Step]:
        """Score all images; writes the rows of each batch before reading the next."""
        n = len(self.files)
        _write(table, [COLUMNS])
        for start in range(0, n, self.batch_size):
            names, x, error = self._read(self.files[start : start + self.batch_size])
            if names:
                accept = self._score(table, names, x)
                if drift is not None:
                    drift.see(accept)
            if error is not None:
                raise DataError(f"{error}: repair it, remove it, or use --skip-bad") from error
            yield Step(self.root.name, min(start + self.batch_size, n), n)
        if drift is not None:
            drift.close()
        if not self.scored:
            raise DataError(
                f"expected images in {str(self.root)!r}, but none of {n} files can be read"
            )

    def share(self) -> Interval:
        """The rejected share of the images scored so far."""
        return wilson(self.rejected / self.scored, self.scored)

    def _read(self, files: list[Path]) -> tuple[list[str], Images, DataError | None]:
        """Names and pixels of a batch, up to the first file with an error, which comes third."""
        channels, height, width = self.guard.shape
        names: list[str] = []
        pictures = []
        failed = None
        for file in files:
            name = as_utf8(file.relative_to(self.root).as_posix())
            try:
                pixels = decode(file, channels, shown=repr(str(file))).pixels
            except DataError as e:
                if self.skip_bad:
                    self.skipped.append(name)
                    continue
                failed = e
                break
            self.resized += pixels.shape[:2] != (height, width)
            names.append(name)
            pictures.append(resize(pixels, height, width))
        stacked = np.stack(pictures) if pictures else np.empty((0, height, width, channels))
        x = torch.from_numpy(stacked).permute(0, 3, 1, 2).contiguous()
        return names, (x.float() / 255).to(self.guard.model.mean), failed

    def _score(self, table: TextIO, names: list[str], x: Images) -> list[bool]:
        decision = self.guard(x)
        accept: list[bool] = decision.accept.tolist()
        labels: list[int] = decision.label.tolist()
        called = [self.guard.classes[i] if self.guard.classes else "" for i in labels]
        # enough digits to distinguish float32 numbers
        scores = [f"{s:.9g}" for s in decision.score.tolist()]
        said = ["yes" if a else "no" for a in accept]
        _write(table, zip(names, labels, called, scores, said, strict=True))
        self.scored += len(accept)
        self.rejected += said.count("no")
        return accept


def images_below(root: Path) -> list[Path]:
    """Every image file that is not hidden; links to folders are not followed."""
    if not os.path.isdir(root):
        what = "is a file" if os.path.exists(root) else "does not exist"
        raise DataError(f"expected a folder of images, but {str(root)!r} {what}")

    def refused(error: OSError) -> None:
        raise DataError(f"{error.filename!r} cannot be listed: {error.strerror}") from error

    found = []
    for folder, inside, files in os.walk(root, onerror=refused):
        inside[:] = sorted(name for name in inside if not name.startswith("."))
        images = (
            n for n in files if not n.startswith(".") and Path(n).suffix.lower() in EXTENSIONS
        )
        found += [Path(folder, name) for name in sorted(images)]
    if not found:
        kinds = " ".join(sorted(e.removeprefix(".") for e in EXTENSIONS))
        raise DataError(f"expected images in {str(root)!r}, got none (looked for {kinds})")
    return found


def _write(table: TextIO, rows: Iterable[Sequence[object]]) -> None:
    cells = (map(for_spreadsheets, row) for row in rows)
    csv.writer(table, lineterminator="\n").writerows(cells)
    table.flush()
