"""Numbers as JSON lines, written one by one; a second run measures only what is missing."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Rows:
    """A file of rows, each identified by the fields `key`."""

    def __init__(self, path: Path, key: Sequence[str], **same: object) -> None:
        self.path, self.key = path, tuple(key)
        self.same = same  # fields that every row has
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text() if path.exists() else ""
        complete = text[: text.rfind("\n") + 1]  # a kill may have left half a line
        if complete != text:
            path.write_text(complete)
        self._known = {self._key(r): r for r in map(json.loads, complete.splitlines())}

    def has(self, **row: object) -> bool:
        """Whether such a row is there."""
        return self._key(row) in self._known

    def value(self, **row: object) -> float | None:
        """The value of such a row, None where there is none."""
        return self._known.get(self._key(row), {}).get("value")

    def write(self, **row: object) -> None:
        """Append a row."""
        row = {**row, **self.same}
        self._known[self._key(row)] = row
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def _key(self, row: Mapping[str, Any]) -> tuple[object, ...]:
        return tuple(row.get(k) for k in self.key)
