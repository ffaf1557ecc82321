"""Run experiments into a folder that can be continued, part by part."""

import json
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any

from rood.errors import InputError, ResultsError, RoodWarning
from rood.evaluation.manifest import full_precision, hardware, versions
from rood.evaluation.store import Store
from rood_papers.framework.cells import Cell, read_all, read_rows
from rood_papers.framework.context import Context, NotRun
from rood_papers.framework.experiment import Experiment

CLAIMS = "claims"  # the part of rows that follow from the others


@dataclass(frozen=True)
class Completed:
    """A part of an experiment that is complete."""

    experiment: str
    part: str
    seconds: float
    sha256: str = ""  # of its rows; rood 0.1 wrote none


class PartsFailed(ResultsError):
    """Some parts are missing, and all others are there."""


def run(experiments: Iterable[Experiment], context: Context, only: str = "") -> Iterator[Cell]:
    """Yield every cell that is not in the folder yet; cells of earlier runs stay.

    only: run the parts whose names contain this. parts.jsonl has the time that each took.
    """
    settings = {
        "size": context.size.name,
        "models": dict(context.models),
        "data": dict(context.data),
        "seed": context.seed,
    } | ({"tf32": True} if context.tf32 else {})
    store = Store(context.out)
    with store.opened(settings), nullcontext() if context.tf32 else full_precision():
        facts = {"versions": versions(), "hardware": hardware(context.device)}
        store.write_json("manifest.json", {"settings": settings} | facts)
        chosen = list(experiments)
        _check_there(only, chosen, context)
        log = _Log(store, {e.name for e in chosen})
        for experiment in chosen:
            yield from _run_one(experiment, context, log, only)
        log.arrange([(e.name, part) for e in chosen for part in _named(e, context)])
        if log.broken:
            name, error = log.broken[0]
            raise PartsFailed(
                f"{len(log.broken)} parts failed, the first is {name}: "
                f"{type(error).__name__}: {error}: the same command tries them again"
            ) from error


def _check_there(only: str, chosen: list[Experiment], context: Context) -> None:
    names = [p.name for e in chosen for p in e.parts(context)] if only else [only]
    if not any(only in name for name in names):
        raise InputError(
            f"expected --only to name a part of {', '.join(e.name for e in chosen)}, got {only!r}: "
            f"the first is {names[0]!r}"
        )


def _named(experiment: Experiment, context: Context) -> list[str]:
    return [*(part.name for part in experiment.parts(context)), CLAIMS]


def _run_one(experiment: Experiment, context: Context, log: "_Log", only: str) -> Iterator[Cell]:
    name = experiment.name
    for part in experiment.parts(context):
        if only not in part.name or (name, part.name) in log.done:
            continue
        start = time.perf_counter()
        try:
            cells = [log.write(c, name, part.name) for c in part.make()]
            log.finish(name, part.name, time.perf_counter() - start)
            yield from cells
        except NotRun as e:  # not finished: the next run tries again
            yield from [log.write(c.not_run(str(e)), name, part.name) for c in part.cells]
        except ResultsError:
            raise  # the folder itself fails: nothing more could be kept
        except Exception as e:  # raised at the end: hours of other parts must not be lost
            log.broken.append((f"{name} {part.name}", e))
    mine = [c for c in log.cells if c.experiment == name]
    for cell in experiment.claims(mine):
        yield log.write(cell, name, CLAIMS)


class _Log:
    """rows.jsonl, and in parts.jsonl which parts are complete and how long they took."""

    def __init__(self, store: Store, now: set[str]) -> None:
        self.broken: list[tuple[str, Exception]] = []
        self._store = store
        self._rows, self._parts = store.path / "rows.jsonl", store.path / "parts.jsonl"
        self.cells = read_rows(self._rows)
        said = read_all(self._parts, Completed)
        parts = [p for p in said if p.sha256 in ("", self._checksum(p.experiment, p.part))]
        if changed := [f"{p.experiment} {p.part}" for p in said if p not in parts]:
            text = f"rows of {', '.join(changed)} in {self._rows} were changed: they are run again"
            warnings.warn(text, RoodWarning, stacklevel=2)
        self.done = {(p.experiment, p.part) for p in parts}
        lost = {(p.experiment, p.part) for p in said} - self.done
        # rows of parts that were cut short, or not run, come again with their experiment
        stays = lambda e, part: (e not in now and (e, part) not in lost) or (e, part) in self.done
        self.cells = [c for c in self.cells if stays(c.experiment, c.part)]
        rows = [_line(c.as_json()) for c in self.cells]
        ended = [_line(asdict(p)) for p in parts]
        self._write(rows, ended)  # without half a line at the end

    def _write(self, rows: list[str], ended: list[str]) -> None:
        for path, lines in ((self._rows, rows), (self._parts, ended)):
            self._store.write_file(path.name, "".join(lines).encode())

    def arrange(self, order: Sequence[tuple[str, str]]) -> None:
        """Put parts that were run again where they belong; those of other commands stay first."""
        place = {key: i for i, key in enumerate(order)}
        there = read_all(self._parts, Completed)
        rank = lambda x: place.get((x.experiment, x.part), -1)
        cells, parts = sorted(self.cells, key=rank), sorted(there, key=rank)
        if (cells, parts) != (self.cells, there):
            self.cells = cells
            self._write([_line(c.as_json()) for c in cells], [_line(asdict(p)) for p in parts])

    def write(self, cell: Cell, experiment: str, part: str) -> Cell:
        if cell.experiment != experiment:
            raise ResultsError(f"expected cells of {experiment}, got one of {cell.experiment}")
        cell = replace(cell, part=part)
        self.cells.append(cell)
        self._store.append(self._rows.name, _line(cell.as_json()).encode())
        return cell

    def finish(self, experiment: str, part: str, seconds: float) -> None:
        ended = Completed(experiment, part, round(seconds, 2), self._checksum(experiment, part))
        self.done.add((experiment, part))
        self._store.append(self._parts.name, _line(asdict(ended)).encode())

    def _checksum(self, experiment: str, part: str) -> str:
        mine = (c for c in self.cells if (c.experiment, c.part) == (experiment, part))
        return sha256("".join(_line(c.as_json()) for c in mine).encode()).hexdigest()


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, allow_nan=False) + "\n"
