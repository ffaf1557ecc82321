"""Run experiments into a folder that can be continued: rows as they are made, parts when done."""

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rood._files import write_whole
from rood.errors import InputError, ResultsError
from rood.evaluation.manifest import full_precision, hardware, versions
from rood.evaluation.store import Store, said_plainly
from rood_papers.framework.cells import Cell, read_rows, whole_lines
from rood_papers.framework.context import Context, NotRun
from rood_papers.framework.experiment import Experiment, Part

CLAIMS = "claims"  # the part of rows that follow from the others


class PartsFailed(ResultsError):
    """Some parts are missing, and all others are there."""


def run(experiments: Iterable[Experiment], context: Context, only: str = "") -> Iterator[Cell]:
    """Every row that was not there yet, as it is made; those of earlier runs stay.

    only: those parts whose names contain this; how long each took is in parts.jsonl.
    """
    settings = {
        "size": context.size.name,
        "models": dict(context.models),
        "data": dict(context.data),
        "seed": context.seed,
    } | ({"tf32": True} if context.tf32 else {})
    folder = Store(context.out)
    with folder.opened(settings), nullcontext() if context.tf32 else full_precision():
        facts = {"versions": versions(), "hardware": hardware(context.device)}
        folder.write_json("manifest.json", {"settings": settings} | facts)
        chosen = list(experiments)
        _check_there(only, chosen, context)
        log = _Log(context.out, {e.name for e in chosen})
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
    for part in experiment.parts(context):
        if only not in part.name or log.done(experiment.name, part.name):
            continue
        start = time.perf_counter()
        try:
            rows = [log.write(r, experiment.name, part.name) for r in part.make()]
            log.finish(experiment.name, part.name, time.perf_counter() - start)
            yield from rows
        except NotRun as e:  # not finished: the next run tries again
            yield from [log.write(r, experiment.name, part.name) for r in _missing(part, e)]
        except ResultsError:
            raise  # the folder itself: nothing more could be kept
        except Exception as e:  # hours of other parts are not to be lost: raised at the end
            log.broken.append((f"{experiment.name} {part.name}", e))
    mine = [r for r in log.rows if r.experiment == experiment.name]
    for row in experiment.claims(mine):
        yield log.write(row, experiment.name, CLAIMS)


def _missing(part: Part, why: NotRun) -> Iterator[Cell]:
    for cell in part.cells:
        yield cell.not_run(str(why))


class _Log:
    """rows.jsonl, and in parts.jsonl which parts are whole and how long they took."""

    def __init__(self, folder: Path, now: set[str]) -> None:
        self.broken: list[tuple[str, Exception]] = []
        self._rows, self._parts = folder / "rows.jsonl", folder / "parts.jsonl"
        parts = (json.loads(line) for line in whole_lines(self._parts))
        self._done = {(p["experiment"], p["part"]) for p in parts}
        # rows of parts that were cut short, or not run, come again with their experiment
        stays = lambda r: r.experiment not in now or self.done(r.experiment, r.part)
        self.rows = [r for r in read_rows(self._rows) if stays(r)]
        text = "".join(_line(r.as_json()) for r in self.rows)
        whole = "".join(f"{line}\n" for line in whole_lines(self._parts))
        with said_plainly(folder):  # what comes next must not follow half a line
            write_whole(self._rows, text.encode())
            write_whole(self._parts, whole.encode())

    def done(self, experiment: str, part: str) -> bool:
        return (experiment, part) in self._done

    def write(self, row: Cell, experiment: str, part: str) -> Cell:
        if row.experiment != experiment:
            raise ResultsError(f"expected rows of {experiment}, got one of {row.experiment}")
        row = row.of_part(part)
        self.rows.append(row)
        _append(self._rows, row.as_json())
        return row

    def finish(self, experiment: str, part: str, seconds: float) -> None:
        fact = {"experiment": experiment, "part": part, "seconds": round(seconds, 2)}
        self._done.add((experiment, part))
        _append(self._parts, fact)


def _append(path: Path, value: dict[str, Any]) -> None:
    with said_plainly(path), path.open("a") as file:
        file.write(_line(value))


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, allow_nan=False) + "\n"
