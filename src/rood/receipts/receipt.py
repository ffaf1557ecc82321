"""A receipt on disk, read with limits: nothing is unpickled, and no link is followed."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from rood._files import Folder
from rood._parsing import json_of
from rood.errors import ResultsError
from rood.evaluation.rows import Row
from rood.evaluation.store import read_rows
from rood.models import checkpoint
from rood.receipts.entry import NAME, SEAL, Measured, ReceiptEntry, parsed

Arrays = dict[str, NDArray[Any]]
HASHES = "hashes.safetensors"
BREAKS = "breaks"
LARGEST = 1 << 30  # bytes of a file
MOST = 20_000  # files
SIGNATURE = "signature.json"
MAY_BE_THERE = ("report.html", SIGNATURE)  # written beside a receipt and part of none
SUFFIXES = (".json", ".jsonl", ".safetensors")  # no file of another kind is in a receipt


@dataclass(frozen=True)
class Receipt:
    """The folder that `rood audit --receipt` wrote.

    Parameters
    ----------
    path : Path
        The folder. Only entry.json is read at once.
    """

    path: Path

    @property
    def folder(self) -> Folder:
        """The way to its files."""
        return Folder(self.path)

    @cached_property
    def card(self) -> Mapping[str, Any]:
        """entry.json as it stands."""
        try:
            found = json_of(self.folder.read(NAME))
        except (OSError, ValueError) as e:
            raise ResultsError(
                f"expected a receipt at {str(self.path)!r}, cannot read {NAME} ({e}): "
                "rood audit --receipt DIR writes one"
            ) from e
        if not isinstance(found, Mapping):
            raise ResultsError(f"expected a table in {NAME}, got {type(found).__name__}")
        return found

    @cached_property
    def entry(self) -> ReceiptEntry:
        """entry.json, checked against its own hash."""
        return parsed(self.card, NAME)

    @property
    def digest(self) -> str:
        """The hash of everything in it but breaks/, the same whether or not files are left out."""
        return checkpoint.digest({**self.card, "absent": []}, SEAL)

    def content(self, name: str) -> bytes:
        """A file, which must have the hash that the entry says."""
        try:
            found = self.folder.read(name, LARGEST)
        except OSError as e:
            reason = (e.strerror or str(e)).lower()
            raise ResultsError(f"{name} cannot be read: {reason}") from e
        wanted = self.entry.files.get(name)
        if wanted is not None and hashlib.sha256(found).hexdigest() != wanted:
            raise ResultsError(f"{name} has another SHA-256 than {NAME} says")
        return found

    def arrays(self, name: str) -> Arrays:
        """The arrays of a safetensors file."""
        return arrays_of(self.content(name), name)

    def scores(self, one: Measured) -> NDArray[np.float64]:
        """The scores of one measurement."""
        return self.arrays(one.scores)["scores"].astype(np.float64)

    def hashes(self, name: str) -> NDArray[np.uint8]:
        """The hash of every image of a clean set, (n, 32)."""
        found = self.arrays(HASHES).get(name)
        if found is None or found.dtype != np.uint8 or found.ndim != 2:
            raise ResultsError(f"{HASHES} has no hashes of the images of {name!r}")
        return found

    def rows(self) -> tuple[Row, ...]:
        """rows.jsonl."""
        self.content("rows.jsonl")
        return tuple(read_rows(self.path))

    def names(self) -> Iterator[str]:
        """Every file and link of the folder, breaks/ aside."""
        for folder, folders, names in os.walk(self.path):  # does not follow links
            where = Path(folder).relative_to(self.path)
            if where.parts[:1] != (BREAKS,):
                links = [f for f in folders if os.path.islink(os.path.join(folder, f))]
                yield from (str(where / n) for n in [*links, *names])


def arrays_of(content: bytes, name: str) -> Arrays:
    """The arrays of the content of a safetensors file."""
    try:
        return dict(load(content))
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError) as e:
        raise ResultsError(f"{name} is no safetensors file of plain numbers ({e})") from e
