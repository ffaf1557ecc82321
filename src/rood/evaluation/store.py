"""A results folder that survives: whole files or none, one writer, the same settings."""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from rood._files import write_whole
from rood._moved import without_removed
from rood.errors import ResultsError
from rood.evaluation.results import Row

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Folder:
    """Where one audit writes. Everything in it but the manifest's cost is reproducible."""

    path: Path

    @contextmanager
    def opened(self, settings: Mapping[str, Any]) -> Iterator[None]:
        """Hold the folder for one run with these settings."""
        with said_plainly(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("w")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a killed run lets go by itself
            except BlockingIOError as e:
                raise ResultsError(
                    f"another run is writing to {self.path}: wait for it or choose another folder"
                ) from e
            self._check_settings(settings)
            yield

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """One whole JSON file."""
        self._write(self.path / name, (json.dumps(value, indent=1) + "\n").encode())

    def write(self, key: tuple[str, ...], arrays: Arrays, facts: Mapping[str, Any]) -> None:
        """One whole file of arrays, with facts about them."""
        text = {k: v if isinstance(v, str) else json.dumps(v) for k, v in facts.items()}
        self._write(self._file(key), save(arrays, metadata=text))

    def has(self, key: tuple[str, ...]) -> bool:
        """Whether `write` has written this."""
        return self._file(key).exists()

    def remove(self, key: tuple[str, ...]) -> None:
        """Undo `write`; nothing where it was not called."""
        with said_plainly(self.path):
            self._file(key).unlink(missing_ok=True)

    def facts(self, name: str) -> Iterator[tuple[dict[str, str], Any]]:
        """One fact of every file of scores that has it, after all that the file says."""
        for path in sorted(self.path.glob("scores/**/*.safetensors")):
            said = _read(path)[1]
            if name in said:
                yield said, json.loads(said[name])

    def read(self, key: tuple[str, ...]) -> tuple[Arrays, dict[str, str]]:
        """What `write` wrote."""
        return _read(self._file(key))

    def said(self, name: str) -> Any:
        """What the manifest of an earlier run into this folder says; None where there is none."""
        try:
            return json.loads((self.path / "manifest.json").read_text()).get(name)
        except (OSError, ValueError, AttributeError):
            return None

    def row_log(self) -> "RowLog":
        """The rows of this folder, from the first."""
        return RowLog(self.path / "rows.jsonl")

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        path = self.path / "manifest.json"
        if not path.exists():
            return
        try:
            before = without_removed(json.loads(path.read_text())["settings"])
        except (ValueError, KeyError, TypeError, OSError) as e:
            raise ResultsError(
                f"cannot read {path}: delete it to go on with the same settings, "
                "or choose another folder"
            ) from e
        differ = sorted(_differing(before, json.loads(json.dumps(settings))))
        if differ:
            shown = ", ".join(differ[:6]) + (", ..." if len(differ) > 6 else "")
            raise ResultsError(
                f"{self.path} holds results of other settings ({shown} differ): "
                "choose another folder or use the same settings"
            )

    def _file(self, key: tuple[str, ...]) -> Path:
        return self.path.joinpath(*map(slug, key)).with_suffix(".safetensors")

    def _write(self, path: Path, content: bytes) -> None:
        with said_plainly(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content)


def _read(path: Path) -> tuple[Arrays, dict[str, str]]:
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
            return arrays, file.metadata() or {}
    except (SafetensorError, OSError) as e:
        raise ResultsError(f"cannot read {path} ({e}): delete it and run again") from e


class RowLog:
    """rows.jsonl, written from the first row on, whatever is there already.

    After a kill the same rows come again: those that are on disk byte for byte stay; the first that
    differs, such as one cut off in the middle, gives way with all behind it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with said_plainly(path):
            self._kept = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        self._rows = 0
        self._bytes = 0

    def append(self, rows: Iterable[Row]) -> None:
        """Put rows on disk, in order."""
        with said_plainly(self._path), self._path.open("ab") as file:
            for row in rows:
                line = row.line().encode()
                if self._rows < len(self._kept) and self._kept[self._rows] != line:
                    file.truncate(self._bytes)
                    self._kept = self._kept[: self._rows]
                if self._rows >= len(self._kept):
                    file.write(line)
                self._rows += 1
                self._bytes += len(line)

    def end(self) -> None:
        """There are no more rows: whatever lies behind them goes."""
        if self._rows < len(self._kept):
            with said_plainly(self._path):
                os.truncate(self._path, self._bytes)


@contextmanager
def said_plainly(path: Path) -> Iterator[None]:
    """Whatever the system refuses while the block writes to `path`, as one sentence."""
    try:
        yield
    except OSError as e:
        reason = (e.strerror or str(e)).lower()
        raise ResultsError(f"cannot write to {path} ({reason}): choose another folder") from e


def slug(name: str) -> str:
    """A file name for any name; names that differ never share one."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:60]
    if plain == name:
        return plain
    return f"{plain.strip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _differing(old: Any, new: Any, prefix: str = "") -> Iterator[str]:
    """Dotted names of what is not the same, no deeper than needed."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        if old != new:
            yield prefix
        return
    for key in old.keys() | new.keys():
        name = f"{prefix}.{key}".lstrip(".")
        if key in old and key in new:
            yield from _differing(old[key], new[key], name)
        else:
            yield name
