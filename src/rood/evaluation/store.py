"""The results folder of an audit: its only reader and writer, without torch.

rows.jsonl              one number per row
scores/…safetensors     `scores` (n,) of one detector on one image set, clean or attacked; `labels`
bounds/…safetensors     `low` and `high` (n,) of the scores within a threat; `class` that is certain
radii/…safetensors      `radius` (n,) of a few images: the eps up to which a decision is certain
classes/…safetensors    `class` (n,), which a network predicts for the ID images, and `labels`
examples/…safetensors   `original`, `attacked` (n, c, h, w), their scores `before`, `after` (n,),
                        `labels` and `places` in the set
adversarial/…safetensors  where a receipt was asked for: every attacked image in 8 bits, `images`
                        (n, c, h, w), and their `scores`
behaviour/…safetensors  what networks and detectors do on a few images, see `behaviour`
manifest.json           settings, versions, hashes of weights and data, hardware, cost
"""

import csv
import hashlib
import html
import importlib
import io
import json
import math
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path, PurePath
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from rood import config
from rood._files import Folder, for_spreadsheets, from_spreadsheets, opened
from rood._moved import without_removed
from rood._parsing import json_file, json_of, tensor_shapes
from rood.errors import CapabilityError, ConfigError, ResultsError, RoodWarning, first_line
from rood.evaluation.gate import Missing, Worst, not_attacked, worst
from rood.evaluation.rows import CLEAN, Arrays, Row

T = TypeVar("T")
Array = NDArray[np.float64]
ROWS = 256 << 20  # bytes that rows.jsonl may have
SEAL = "sha256"  # of arrays and facts, in the facts of every file of arrays
FIELDS = tuple(f.name for f in fields(Row))
CHANGED = "rows.jsonl is not what the audit wrote: run the audit again"
_CACHED = "[0-9a-f]" * 32  # images, where the folder is the cache too
OURS = (  # what may stand in a folder that has no manifest yet
    *("manifest.json*", "rows.jsonl*", "parts.jsonl*", "report.html*", "attack.safetensors*"),
    *("scores", "bounds", "radii", "classes", "examples", "adversarial", "behaviour", "units"),
    *("scores.csv*", "checks.txt*", "attacked.npz*", "images"),  # of `rood attack`
    *(f"{_CACHED}.npy*", f"{_CACHED}.json*"),
)


@dataclass(frozen=True)
class Store:
    """A results folder: files are whole or absent, one run writes, with one set of settings."""

    path: Path

    @property
    def folder(self) -> Folder:
        """The way to its files."""
        return Folder(self.path)

    @contextmanager
    def opened(self, settings: Mapping[str, Any]) -> Iterator[None]:
        """Lock the folder for one run with these settings."""
        self._check_ours()
        with ExitStack() as stack:
            try:
                with readable_errors(self.path / ".lock"):
                    lock = stack.enter_context(self.folder.locked())
            except ResultsError as e:
                if not isinstance(e.__cause__, BlockingIOError):
                    raise
                raise ResultsError(
                    f"another run is writing to {self.path}: wait for it or choose another folder"
                ) from e
            self._check_settings(settings)
            yield
            with readable_errors(self.path):
                self.folder.check_still_there(lock)

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write one JSON file."""
        self.write_file(name, (json.dumps(value, indent=1) + "\n").encode())

    def write_file(self, name: str, content: bytes) -> None:
        """Write one file, whole or not at all."""
        with readable_errors(self.path / name):
            self.folder.write(name, content)

    def append(self, name: str, content: bytes) -> None:
        """Add to the end of a file."""
        with readable_errors(self.path / name):
            self.folder.append(name, content)

    def write(self, key: tuple[str, ...], arrays: Arrays, facts: Mapping[str, Any]) -> None:
        """Write one file of arrays, with facts about them and a checksum of both."""
        text = {k: v if isinstance(v, str) else json.dumps(v) for k, v in facts.items()}
        content = save(arrays, metadata=text | {SEAL: _checksum(arrays, text)})
        self.write_file(_file(key), content)

    def name(self, key: tuple[str, ...]) -> str:
        """The name of the file that `write` writes."""
        return _file(key)

    def has(self, key: tuple[str, ...]) -> bool:
        """Whether `write` has written this."""
        return self.folder.has(_file(key))

    def read(self, key: tuple[str, ...], prefix: str = "") -> tuple[Arrays, dict[str, str]]:
        """The arrays of one file whose names begin with `prefix`, and its facts."""
        arrays, facts = _read(self.path / _file(key))
        return {k: v for k, v in arrays.items() if k.startswith(prefix)}, facts

    def intact(self, key: tuple[str, ...]) -> bool:
        """Whether a file holds what `write` has written."""
        try:
            return _read_sealed(self.path / _file(key))[2]
        except ResultsError:
            return False

    def remove(self, key: tuple[str, ...]) -> None:
        """Delete a file if it is there."""
        with readable_errors(self.path):
            self.folder.remove(_file(key))

    def begun(self) -> bool:
        """Whether there are numbers of an audit."""
        return self.folder.has("rows.jsonl") or bool(self.folder.files("scores", ".safetensors"))

    def forget(self, detectors: Iterable[tuple[str, ...]]) -> None:
        """Delete the results of some detectors, (model, detector) each."""
        with readable_errors(self.path):
            for name in ("report.html", "rows.jsonl"):  # rows are made again from the scores
                self.folder.remove(name)
            for key in detectors:
                for kind in ("adversarial", "examples", "scores"):
                    self.folder.remove_tree(PurePath(kind, *map(slug, key)))
                for kind in ("bounds", "radii"):  # of its classes too
                    self.folder.remove_tree(PurePath(kind, slug(key[0])))

    def facts(self, name: str, kind: Any) -> Iterator[tuple[dict[str, str], Any]]:
        """One fact of every file of scores that has it, after all facts of that file."""
        for file in self.folder.files("scores", ".safetensors"):
            with suppress(ResultsError, ConfigError, ValueError):  # a damaged file is made again
                said = _read(self.path / file)[1]
                if name in said:
                    value = json_of(said[name])
                    config.check({name: kind}, {name: value}, file)
                    yield said, value

    def rows_checksum(self) -> str:
        """Of rows.jsonl; the manifest of a finished audit has it."""
        with readable_errors(self.path):
            return hashlib.sha256(self.folder.read("rows.jsonl", ROWS)).hexdigest()

    def manifest(self) -> dict[str, Any] | None:
        """manifest.json; None where it is missing or damaged."""
        try:
            found = json_file(self.path / "manifest.json")
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def said(self, name: str) -> Any:
        """One entry of the manifest; None where there is none."""
        return (self.manifest() or {}).get(name)

    def row_log(self) -> "RowLog":
        """Write the rows, from the first."""
        return RowLog(self.folder)

    def _check_ours(self) -> None:
        """Refuse a folder that belongs to somebody else: files in it are replaced and deleted."""
        with readable_errors(self.path):
            other = self.folder.foreign(*OURS)
        if other is not None and not isinstance(self.said("settings"), dict):
            raise ResultsError(
                f"expected an empty folder or results of rood at {self.path}, found {other!r} in "
                "it: choose another folder"
            )

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        path = self.path / "manifest.json"
        if not os.path.exists(path):
            return
        if (before := self.said("settings")) is None:
            raise ResultsError(
                f"cannot read {path}: delete it to measure anew, or choose another folder"
            )
        differ = sorted(_differing(without_removed(before), json.loads(json.dumps(settings))))
        if differ:
            shown = ", ".join(differ[:6]) + (", ..." if len(differ) > 6 else "")
            raise ResultsError(
                f"{self.path} holds results of other settings ({shown} differ): "
                "choose another folder or use the same settings"
            )


class RowLog:
    """rows.jsonl, written from the first row on, whatever is there already.

    A continued run makes the same rows again: rows that are on disk byte for byte stay. The first
    one that differs (a kill may have cut it off) is replaced, and all rows after it are dropped.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder, self._path = folder, folder.path / "rows.jsonl"
        with readable_errors(self._path):
            there = folder.read("rows.jsonl", ROWS) if folder.has("rows.jsonl") else b""
        self._kept = there.splitlines(keepends=True)
        self._rows = 0
        self._bytes = 0

    def append(self, rows: Iterable[Row]) -> None:
        """Put rows on disk, in order."""
        with self._opened() as file:
            for row in rows:
                line = row.line().encode()
                if self._rows < len(self._kept) and self._kept[self._rows] != line:
                    file.seek(file.truncate(self._bytes))
                    self._kept = self._kept[: self._rows]
                if self._rows >= len(self._kept):
                    file.write(line)
                self._rows += 1
                self._bytes += len(line)

    def end(self) -> None:
        """There are no more rows: drop whatever follows the last one."""
        if self._rows < len(self._kept):
            with self._opened() as file:
                file.truncate(self._bytes)

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        with readable_errors(self._path), self._folder.appending(self._path.name) as file:
            yield file


class Origin(NamedTuple):
    """Which network, detector and images a saved file belongs to."""

    model: str
    detector: str
    dataset: str
    role: str  # "inside" or "outside"
    condition: str  # "clean" or the scenario


@dataclass(frozen=True)
class SavedScores:
    """The scores of one detector on one image set."""

    origin: Origin
    scores: Array  # (n,)
    labels: Array | None = None  # (n,), -1 for an unlabelled image; folders of rood 0.1 have none


@dataclass(frozen=True)
class SavedRadii:
    """The eps up to which the decisions on some images of a set are certain."""

    origin: Origin
    radii: Array  # (n,)


@dataclass(frozen=True)
class SavedClasses:
    """What a network predicts for labelled ID images."""

    model: str
    predicted: Array  # (n,)
    labels: Array  # (n,), -1 for an unlabelled image


@dataclass(frozen=True)
class Examples:
    """Some attacked images beside the originals."""

    origin: Origin
    direction: str  # "look_in" or "look_out"
    original: Array  # (n, c, h, w)
    attacked: Array  # (n, c, h, w)
    before: Array  # (n,)
    after: Array  # (n,)
    labels: Array | None = None  # (n,); folders of rood 0.1 have none


@dataclass(frozen=True)
class Contents:
    """Everything in a results folder, as the page shows it."""

    rows: tuple[Row, ...]
    scores: tuple[SavedScores, ...] = ()
    examples: tuple[Examples, ...] = ()
    manifest: Mapping[str, Any] | None = None
    problems: tuple[str, ...] = ()  # files that are missing, cut off or unreadable
    classes: tuple[SavedClasses, ...] = ()
    radii: tuple[SavedRadii, ...] = ()


def read_folder(folder: Path) -> Contents:
    """All of a results folder; files that cannot be read are named in `problems`."""
    if not os.path.isdir(folder):
        raise ResultsError(
            f"expected a results folder, found nothing of the kind at {str(folder)!r}: "
            "run `rood audit` first or check the path"
        )
    problems: list[str] = []
    rows = _distinct_rows(folder, problems)
    scores = tuple(_saved_scores(folder, problems))
    examples = tuple(_examples(folder, problems))
    classes = tuple(_classes(folder, problems))
    radii = tuple(_radii(folder, problems))
    manifest = Store(folder).manifest()
    if manifest is None:
        there = os.path.isfile(folder / "manifest.json")
        problems.append(
            "manifest.json cannot be read" if there else "there is no manifest.json yet"
        )
    elif _of_0_1(manifest, folder):
        warnings.warn(
            f"{folder} was written by a version of rood that did not record what networks and "
            "detectors do: its numbers may be of several, a new audit of it measures anew",
            RoodWarning,
            stacklevel=2,
        )
    if not (rows or scores or examples or manifest):
        raise ResultsError(
            f"expected results (rows.jsonl) in {str(folder)!r}, found none: run `rood audit` first"
        )
    return Contents(rows, scores, examples, manifest, tuple(problems), classes, radii)


def _of_0_1(manifest: Mapping[str, Any], folder: Path) -> bool:
    versions = manifest.get("versions")
    whole = isinstance(versions, dict) and "rood" in versions
    later = ("behaviour", "entry.json")  # of a receipt
    return whole and not any(os.path.exists(folder / name) for name in later)


def _distinct_rows(folder: Path, problems: list[str]) -> tuple[Row, ...]:
    path = folder / "rows.jsonl"
    if not os.path.isfile(path):
        problems.append("there is no rows.jsonl yet")
        return ()
    rows = tuple(read_rows(folder))
    if not rows:
        problems.append("rows.jsonl holds no number yet")
    elif _cut_off(path):
        problems.append("the last line of rows.jsonl was cut off")
    elif _changed(folder):
        problems.append(CHANGED)
    # a continued run may write a number twice: the later one counts
    return tuple({_key(row): row for row in rows}.values())


def _cut_off(path: Path) -> bool:
    with opened(path) as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


def _changed(folder: Path) -> bool:
    """Whether rows.jsonl is another than the one that a finished audit wrote."""
    store = Store(folder)
    wrote = store.said("rows_sha256")
    return wrote is not None and wrote != store.rows_checksum()


def _key(r: Row) -> tuple[object, ...]:
    return r.model, r.detector, r.dataset, r.scenario, r.side, r.metric, r.seed


def _saved_scores(folder: Path, problems: list[str]) -> Iterator[SavedScores]:
    for arrays, facts in _files(folder, "scores", ("scores",), problems):
        scores = arrays["scores"].reshape(-1)
        yield SavedScores(_origin(facts), scores, _labels(arrays, len(scores)))


def _classes(folder: Path, problems: list[str]) -> Iterator[SavedClasses]:
    for arrays, facts in _files(folder, "classes", ("class", "labels"), problems):
        predicted = arrays["class"].reshape(-1)
        if (labels := _labels(arrays, len(predicted))) is not None:
            yield SavedClasses(facts.get("model", ""), predicted, labels)


def _radii(folder: Path, problems: list[str]) -> Iterator[SavedRadii]:
    for arrays, facts in _files(folder, "radii", ("radius",), problems):
        yield SavedRadii(_origin(facts), arrays["radius"].reshape(-1))


def _examples(folder: Path, problems: list[str]) -> Iterator[Examples]:
    names = ("original", "attacked", "before", "after")
    for arrays, facts in _files(folder, "examples", names, problems):
        n = len(arrays["before"])
        alike = arrays["original"].shape == arrays["attacked"].shape
        if arrays["original"].ndim == 4 and alike and len(arrays["original"]) == n:
            shown = {name: arrays[name] for name in names}
            labels = _labels(arrays, n)
            yield Examples(_origin(facts), facts.get("direction", ""), **shown, labels=labels)
        else:
            problems.append("one file under examples/ has tensors that do not fit together")


def _files(
    folder: Path, kind: str, names: tuple[str, ...], problems: list[str]
) -> Iterator[tuple[dict[str, Array], dict[str, str]]]:
    unreadable = 0
    for path in sorted((folder / kind).rglob("*.safetensors")):
        try:
            arrays, facts = _read(path)
            also = ("labels",) if "labels" in arrays else ()
            wanted = {n: np.asarray(arrays[n], np.float64) for n in dict.fromkeys((*names, *also))}
        except (ResultsError, KeyError, ValueError, TypeError):
            unreadable += 1
            continue
        yield wanted, facts
    if unreadable:
        files = "1 file" if unreadable == 1 else f"{unreadable} files"
        problems.append(f"{files} under {kind}/ cannot be read")


def _labels(arrays: Mapping[str, Array], n: int) -> Array | None:
    """The labels of n images; None where there are none that fit."""
    labels = arrays.get("labels")
    return labels if labels is not None and labels.shape == (n,) else None


def _origin(facts: Mapping[str, str]) -> Origin:
    values = {name: facts.get(name, "") for name in Origin._fields}
    values["condition"] = values["condition"] or CLEAN
    return Origin(**values)


def _read(path: Path) -> tuple[Arrays, dict[str, str]]:
    """Arrays and facts of a file that was not changed."""
    return _read_sealed(path)[:2]


def _read_sealed(path: Path) -> tuple[Arrays, dict[str, str], bool]:
    """Arrays, facts, and whether a checksum vouches for them; files of rood 0.1 have none."""
    try:
        tensor_shapes(path)  # of the size that it says, and no pipe
        with safe_open(path, framework="numpy") as file:
            arrays = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
            facts = dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as e:
        raise ResultsError(f"cannot read {path} ({e}): delete it and run again") from e
    seal = facts.pop(SEAL, None)
    if seal is not None and seal != _checksum(arrays, facts):
        raise ResultsError(f"{path} was changed after it was written: delete it and run again")
    return arrays, facts, seal is not None


def _checksum(arrays: Arrays, facts: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name, value in sorted(arrays.items()):
        digest.update(f"{name} {value.dtype.str} {value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, repr=False, init=False)
class Results:
    """The rows of a results folder, to look numbers up in.

    In a notebook it shows a table of every attacked AUROC with its interval and verdict.

    Parameters
    ----------
    folder : str or Path
        What `rood.audit` or `rood audit --out` wrote. Rows are read when they are used, so a
        folder that an audit is still writing to can be opened too.

    Examples
    --------
    >>> import rood, tempfile, torch
    >>> from rood.attacks import PGD
    >>> from rood.detectors import MSP
    >>> from rood.threat import Linf
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> model = rood.wrap(net, mean=(0.5,), std=(0.3,))
    >>> noise = torch.rand(100, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> results = rood.audit(
    ...     model,
    ...     {"msp": MSP(model)},
    ...     inside=noise[:80],
    ...     outside={"noise": noise[80:]},
    ...     threats=[Linf(0.1)],
    ...     attack=PGD(steps=2),
    ...     out=tempfile.mkdtemp(),
    ... )
    >>> row, = results.find(detector="msp", side="both", metric="auroc")
    >>> row.scenario, row.low <= row.value <= row.high
    ('pgd linf:0.1', True)
    """

    folder: Path

    def __init__(self, folder: str | Path) -> None:
        object.__setattr__(self, "folder", Path(folder))

    @property
    def rows(self) -> tuple[Row, ...]:
        """Every row, in the order in which it was written."""
        if _changed(self.folder):
            warnings.warn(f"{self.folder}: {CHANGED}", RoodWarning, stacklevel=2)
        return tuple(read_rows(self.folder))

    def find(self, **fields: object) -> tuple[Row, ...]:
        """The rows whose fields are as given: find(detector="msp", side="both", metric="auroc")."""
        wanted = fields.items()
        return tuple(r for r in self.rows if all(getattr(r, k) == v for k, v in wanted))

    def worst(self, **fields: object) -> Worst:
        """The lowest AUROC with both sides attacked, of the rows whose fields are as given.

        For tests: `assert results.worst() > 0.7`. It is nan, which fails, where a number cannot be
        believed (verdict `fail`) or a detector was not attacked, and prints which one and why.
        """
        mine = [m for m in self.not_attacked() if _meant(m, fields)]
        return worst(self.find(**fields), mine)

    def not_attacked(self) -> list[Missing]:
        """The networks and detectors without a number, both sides attacked."""
        return not_attacked(self.rows, Store(self.folder).manifest())

    def __repr__(self) -> str:
        try:
            rows = self.rows
        except OSError:
            return f"Results({str(self.folder)!r}, no rows)"
        models, detectors = ({getattr(r, f) for r in rows} - {""} for f in ("model", "detector"))
        about = [f"{len(rows)} rows", f"models: {', '.join(sorted(models))}"]
        about.append(f"detectors: {', '.join(sorted(detectors))}")
        if attacked := [r for r in _attacked(rows) if math.isfinite(r.value)]:
            worst = min(attacked, key=lambda r: r.value)
            where = f"{worst.detector} on {worst.model}, {worst.dataset}, {worst.scenario}"
            about.append(f"worst attacked AUROC {worst.value:.3f} ({where}, {worst.side})")
        return f"Results({str(self.folder)!r}, {'; '.join(about)})"

    def _repr_html_(self) -> str:
        """Every attacked AUROC with its interval and verdict."""
        try:
            rows = _attacked(self.rows)
        except OSError:
            rows = []
        lines = [
            [
                *(r.model, r.detector, r.dataset, r.scenario, r.side, f"{r.value:.3f}"),
                "" if r.low is None or r.high is None else f"{r.low:.3f} to {r.high:.3f}",
                r.verdict,
            ]
            for r in rows
        ]
        head = [
            "model",
            "detector",
            "dataset",
            "scenario",
            "attacked",
            "AUROC",
            "interval",
            "verdict",
        ]
        cells = lambda tag, texts: "".join(f"<{tag}>{html.escape(t)}</{tag}>" for t in texts)
        body = "".join(f"<tr>{cells('td', line)}</tr>" for line in lines)
        return f"<table><thead><tr>{cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"

    def to_csv(self, path: str | Path) -> None:
        """All rows as a table for spreadsheets; `rows_from_csv` reads it back."""
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, FIELDS)
            table.writeheader()
            rows = map(asdict, self.rows)
            table.writerows({k: for_spreadsheets(v) for k, v in row.items()} for row in rows)

    def to_pandas(self) -> Any:
        """All rows as a DataFrame. Needs pandas."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as e:
            raise CapabilityError("needs pandas: pip install pandas") from e
        return pandas.DataFrame([asdict(r) for r in self.rows], columns=list(FIELDS))

    def log_to(self, tracker: str) -> None:
        """Log numbers, page and rows to "mlflow" or "wandb": the active run, or one of its own."""
        from rood.evaluation import trackers

        trackers.tracker(tracker)(self)


def _meant(missing: Missing, fields: Mapping[str, object]) -> bool:
    """Whether these fields of rows include what is missing."""
    known = {k: v for k, v in missing._asdict().items() if v}
    return all(fields.get(k, v) == v for k, v in known.items())


def _attacked(rows: Iterable[Row]) -> list[Row]:
    return [r for r in rows if r.metric == "auroc" and r.side != "none"]


def read_rows(folder: Path) -> Iterator[Row]:
    """The rows of a results folder, in the order they were made."""
    return read_lines(folder / "rows.jsonl", Row)


def read_lines(path: Path, kind: type[T]) -> Iterator[T]:
    """Every complete line of a file of JSON lines as a `kind`."""
    with _read_errors(path), opened(path, ROWS) as file:
        for i, line in enumerate(file, start=1):
            if line.endswith(b"\n"):  # a last line without its end was cut off by a kill
                yield _parsed_line(line, kind, f"line {i} of {str(path)!r}")


def _parsed_line(line: bytes, kind: type[T], where: str) -> T:
    try:
        return config.build(kind, json_of(line), kind.__name__)
    except (ConfigError, ValueError, TypeError) as e:
        raise ResultsError(
            f"expected a {kind.__name__} in {where}, got something else ({first_line(e):.200}): "
            "remove the line and run again"
        ) from e


@contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    """Say what is wrong with a file that is there and cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as e:
        raise ResultsError(
            f"cannot read {path} ({(e.strerror or str(e)).lower()}): remove it and run again"
        ) from e


def rows_from_csv(path: str | Path) -> Iterator[Row]:
    """The rows of a table that `Results.to_csv`, a spreadsheet or another program has written."""
    try:
        with opened(Path(path), ROWS) as raw, io.TextIOWrapper(raw, "utf-8", newline="") as file:
            table = csv.DictReader(file)
            if sorted(table.fieldnames or ()) != sorted(FIELDS):
                got = ", ".join(table.fieldnames or ()) or "nothing"
                raise ResultsError(f"expected columns {', '.join(FIELDS)} in {path}, got {got}")
            for line in table:
                yield _parsed(line, f"line {table.line_num} of {path}")
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise ResultsError(f"expected a table of rows as UTF-8 text at {path}, got none") from e


def _parsed(line: dict[str, Any], where: str) -> Row:
    """A line of text as the types of a row's fields."""
    kinds = {f.name: f.type for f in fields(Row)}
    values: dict[str, Any] = {}
    for name, text in line.items():
        try:
            if kinds[name] is float:
                values[name] = float(text)
            elif kinds[name] is int:
                values[name] = int(float(text))  # a spreadsheet writes 3 as 3.0
            elif name in ("low", "high"):
                values[name] = float(text) if text else None
            else:
                values[name] = from_spreadsheets(text or "")
        except (ValueError, TypeError, KeyError) as e:
            raise ResultsError(f"expected a number as {name!r} in {where}, got {text!r}") from e
    return Row(**values)


@contextmanager
def readable_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of the block, which writes to `path`, into one sentence."""
    try:
        yield
    except OSError as e:
        reason = (e.strerror or str(e)).lower()
        raise ResultsError(f"cannot write to {path} ({reason}): choose another folder") from e


def _file(key: tuple[str, ...]) -> str:
    return f"{PurePath(*map(slug, key))}.safetensors"


def slug(name: str) -> str:
    """A file name for any name; different names never share one."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:60]
    if plain == name:
        return plain
    return f"{plain.strip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _differing(old: Any, new: Any, prefix: str = "") -> Iterator[str]:
    """Dotted names of the entries that differ, no deeper than needed."""
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
