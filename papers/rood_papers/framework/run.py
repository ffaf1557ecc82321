"""Run experiments into a folder that can be continued, part by part."""

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from rood.errors import InputError, ResultsError
from rood.evaluation.manifest import full_precision, hardware, versions
from rood.evaluation.store import Store
from rood_papers.framework.cells import Cell, read_rows, whole_lines
from rood_papers.framework.context import Context, NotRun
from rood_papers.framework.experiment import Experiment

CLAIMS = "claims"  # the part of rows that follow from the others


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
        parts = whole_lines(self._parts)
        self.done = {(p["experiment"], p["part"]) for p in map(json.loads, parts)}
        # rows of parts that were cut short, or not run, come again with their experiment
        stays = lambda c: c.experiment not in now or (c.experiment, c.part) in self.done
        self.cells = [c for c in read_rows(self._rows) if stays(c)]
        rows = [_line(c.as_json()) for c in self.cells]
        for path, lines in ((self._rows, rows), (self._parts, parts)):  # no half line at the end
            store.write_file(path.name, "".join(lines).encode())

    def write(self, cell: Cell, experiment: str, part: str) -> Cell:
        if cell.experiment != experiment:
            raise ResultsError(f"expected cells of {experiment}, got one of {cell.experiment}")
        cell = replace(cell, part=part)
        self.cells.append(cell)
        self._store.append(self._rows.name, _line(cell.as_json()).encode())
        return cell

    def finish(self, experiment: str, part: str, seconds: float) -> None:
        fact = {"experiment": experiment, "part": part, "seconds": round(seconds, 2)}
        self.done.add((experiment, part))
        self._store.append(self._parts.name, _line(fact).encode())


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, allow_nan=False) + "\n"
