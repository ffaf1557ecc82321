"""A results folder as plain data, and what is missing from it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from rood.errors import ResultsError
from rood.evaluation.results import Row, read_rows

Array = NDArray[np.float64]


class Origin(NamedTuple):
    """Which network, detector and images a saved file belongs to."""

    model: str
    detector: str
    dataset: str
    role: str  # "inside" or "outside"
    condition: str  # "clean" or the scenario


@dataclass(frozen=True)
class Scores:
    """The scores of one detector on one image set."""

    origin: Origin
    scores: Array  # (n,)


@dataclass(frozen=True)
class Examples:
    """Some attacked images, beside what they were."""

    origin: Origin
    direction: str  # "look_in" or "look_out"
    original: Array  # (n, c, h, w)
    attacked: Array  # (n, c, h, w)
    before: Array  # (n,)
    after: Array  # (n,)


@dataclass(frozen=True)
class Folder:
    """Everything the page is made of."""

    rows: tuple[Row, ...]
    scores: tuple[Scores, ...] = ()
    examples: tuple[Examples, ...] = ()
    manifest: Mapping[str, Any] | None = None
    problems: tuple[str, ...] = ()  # files that are missing, cut off or unreadable


def read_folder(folder: Path) -> Folder:
    """All of a results folder; files that cannot be read are named in `problems`."""
    if not folder.is_dir():
        raise ResultsError(
            f"expected a results folder, found nothing of the kind at {str(folder)!r}: "
            "run `rood audit` first or check the path"
        )
    problems: list[str] = []
    rows = _rows(folder, problems)
    scores = tuple(_scores(folder, problems))
    examples = tuple(_examples(folder, problems))
    manifest = _manifest(folder, problems)
    if not (rows or scores or examples or manifest):
        raise ResultsError(
            f"expected results (rows.jsonl) in {str(folder)!r}, found none: run `rood audit` first"
        )
    return Folder(rows, scores, examples, manifest, tuple(problems))


def _rows(folder: Path, problems: list[str]) -> tuple[Row, ...]:
    path = folder / "rows.jsonl"
    if not path.is_file():
        problems.append("there is no rows.jsonl yet")
        return ()
    try:
        rows = tuple(read_rows(folder))
    except (ValueError, TypeError) as error:
        raise ResultsError(
            f"expected one result a line in {str(path)!r}, got something else ({error}): "
            "remove the bad line or run the audit again"
        ) from error
    if not rows:
        problems.append("rows.jsonl holds no number yet")
    elif not path.read_bytes().endswith(b"\n"):
        problems.append("the last line of rows.jsonl was cut off")
    # a continued run may write a number twice: the later one stands
    return tuple({_key(row): row for row in rows}.values())


def _key(row: Row) -> tuple[object, ...]:
    return (
        row.model,
        row.detector,
        row.dataset,
        row.scenario,
        row.side,
        row.metric,
        row.seed,
    )


def _manifest(folder: Path, problems: list[str]) -> Mapping[str, Any] | None:
    path = folder / "manifest.json"
    if not path.is_file():
        problems.append("there is no manifest.json yet")
        return None
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError):
        manifest = None
    if not isinstance(manifest, dict):
        problems.append("manifest.json cannot be read")
        return None
    return manifest


def _scores(folder: Path, problems: list[str]) -> Iterator[Scores]:
    for tensors, metadata in _files(folder, "scores", ("scores",), problems):
        yield Scores(_origin(metadata), tensors["scores"].reshape(-1))


def _examples(folder: Path, problems: list[str]) -> Iterator[Examples]:
    names = ("original", "attacked", "before", "after")
    for tensors, metadata in _files(folder, "examples", names, problems):
        n = len(tensors["before"])
        alike = tensors["original"].shape == tensors["attacked"].shape
        if tensors["original"].ndim == 4 and alike and len(tensors["original"]) == n:
            yield Examples(_origin(metadata), metadata.get("direction", ""), **tensors)
        else:
            problems.append("one file under examples/ has tensors that do not fit together")


def _files(
    folder: Path, kind: str, names: tuple[str, ...], problems: list[str]
) -> Iterator[tuple[dict[str, Array], dict[str, str]]]:
    unreadable = 0
    for path in sorted((folder / kind).rglob("*.safetensors")):
        try:
            with safe_open(path, framework="numpy") as file:
                tensors = {name: np.asarray(file.get_tensor(name), np.float64) for name in names}
                metadata = dict(file.metadata() or {})
        except (SafetensorError, OSError, ValueError, TypeError):
            unreadable += 1
            continue
        yield tensors, metadata
    if unreadable:
        files = "1 file" if unreadable == 1 else f"{unreadable} files"
        problems.append(f"{files} under {kind}/ cannot be read")


def _origin(metadata: Mapping[str, str]) -> Origin:
    values = {name: metadata.get(name, "") for name in Origin._fields}
    values["condition"] = values["condition"] or "clean"
    return Origin(**values)
