"""Carry out a plan, unit by unit, on any engine; a second run continues the first."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rood.errors import InputError
from rood.evaluation.account import Account
from rood.evaluation.batching import PROBE, images_at_once
from rood.evaluation.engines import Engine, Results
from rood.evaluation.engines.local import Local
from rood.evaluation.manifest import full_precision
from rood.evaluation.plan import CLEAN, Plan, role_of
from rood.evaluation.results import Row
from rood.evaluation.rows import Evidence, detector_rows
from rood.evaluation.shelf import Shelf
from rood.evaluation.store import Folder
from rood.evaluation.tasks import Work
from rood.evaluation.unit import Arrays, Role, share_right
from rood.metrics import threshold_at_tpr, wilson


@dataclass(frozen=True)
class Step:
    """How far the run is, in a unit that grows about evenly with time, and rows just written."""

    label: str
    done: float
    total: float
    rows: tuple[Row, ...] = ()


def run(
    plan: Plan,
    out: Path,
    about: Mapping[str, Any] | None = None,
    engine: Engine | None = None,  # None: this process
) -> Iterator[Step]:
    """Everything the plan asks for, written to `out` as it is made; yields after every unit."""
    return Run(plan, Folder(out), dict(about or {}), engine or Local()).steps()


@dataclass
class Run:
    """One run of a plan into a folder."""

    plan: Plan
    folder: Folder
    about: dict[str, Any]  # more for the manifest
    engine: Engine
    waiting: deque[tuple[str, str]] = field(default_factory=deque)  # whose rows come next

    def steps(self) -> Iterator[Step]:
        """See `run`."""
        with full_precision(), self.folder.opened(self.plan.settings()):
            self.plan = replace(self.plan, batch_size=self._images_at_once())
            self.shelf, self.log = Shelf(self.plan, self.folder), self.folder.row_log()
            account = Account(self.plan, self.folder, self.about)
            account.write(finished=False)
            with self.engine.opened(self.plan) as results:
                yield from self._work(results)
            self.log.end()
            self.shelf.clear()
            account.write(finished=True)

    def _work(self, results: Results) -> Iterator[Step]:
        """First clean scores, which say what is enough for an attacker; then the attacks."""
        self.waiting.extend((m, d) for m, ds in self.plan.detectors.items() for d in ("", *ds))
        clean = self._clean_units()
        ahead = [u for w in self._attacks_left() for u in w.shards(self.plan)]
        done = self._weight(clean)
        yield from self._carried_out(results, clean, 0.0, done + self._weight(ahead))
        attacks = self._attack_units()
        yield from self._carried_out(results, attacks, done, done + self._weight(attacks))

    def _carried_out(
        self, results: Results, units: Sequence[Work], done: float, total: float
    ) -> Iterator[Step]:
        """Units end in any order. Rows have one order: each is written once all before it are."""
        for unit, found in results(units):
            self.shelf.put(unit, found)
            done += unit.weight(self.plan)
            yield Step(f"{unit.model}: {unit.what()}", done, total)
            for label, rows in self._rows_due():
                yield Step(label, done, total, rows)
        for label, rows in self._rows_due():
            yield Step(label, done, total, rows)

    def _rows_due(self) -> Iterator[tuple[str, tuple[Row, ...]]]:
        while self.waiting and self._known(*self.waiting[0]):
            model, detector = self.waiting.popleft()
            rows = tuple(self._rows(model, detector) if detector else self._accuracy_rows(model))
            self.log.append(rows)
            yield f"{model}: {detector or 'accuracy'}", rows

    def _known(self, model: str, detector: str) -> bool:
        """Whether all that is needed for the rows of a detector, or of a network, is there."""
        if not detector:
            return self._unlabelled() or self.shelf.has(_classes(model))
        clean = [_clean(model, detector, name) for name in self.plan.sets()]
        return all(map(self.shelf.has, [*clean, *self._attacks(model, detector)]))

    def _clean_units(self) -> list[Work]:
        """One forward pass for all detectors whose scores are missing; and the classes given."""
        units = []
        for model, detectors in self.plan.detectors.items():
            for name in self.plan.sets():
                lacking: dict[tuple[int, int], list[str]] = {}
                for d in detectors:
                    for u in self.shelf.missing(_clean(model, d, name)):
                        lacking.setdefault((u.start, u.stop), []).append(d)
                units += [
                    Work(model=model, dataset=name, detectors=tuple(ds), start=a, stop=b)
                    for (a, b), ds in lacking.items()
                ]
            if not self._unlabelled():
                units += self.shelf.missing(_classes(model))
        return units

    def _attack_units(self) -> list[Work]:
        return [
            unit
            for whole in self._attacks_left()
            for unit in self.shelf.missing(self._with_enough(whole))
        ]

    def _attacks_left(self) -> list[Work]:
        """Sets to be attacked, of which not all images have been."""
        pairs = [(m, d) for m, ds in self.plan.detectors.items() for d in ds]
        return [w for m, d in pairs for w in self._attacks(m, d) if not self.shelf.has(w)]

    def _attacks(self, model: str, detector: str) -> list[Work]:
        return [
            Work(model=model, dataset=name, detectors=(detector,), threat=threat)
            for name, threat in self.plan.attacked()
        ]

    def _with_enough(self, whole: Work) -> Work:
        enough = self._enough(whole.model, whole.detectors[0], role_of(whole.dataset))
        return replace(whole, enough=enough)

    def _enough(self, model: str, detector: str, role: Role) -> float:
        """Beyond every clean image of the other side and the threshold, no metric changes."""
        clean = lambda name: self._read(_clean(model, detector, name))["scores"]
        threshold = threshold_at_tpr(clean("calibrate"))
        if role == "inside":
            return max(threshold, *(float(clean(n).max()) for n in self.plan.outside))
        return -min(threshold, float(clean("inside").min()))

    def _rows(self, model: str, detector: str) -> Iterator[Row]:
        plan = self.plan
        evidence = Evidence(
            calibrate=self._read(_clean(model, detector, "calibrate")),
            clean={n: self._read(_clean(model, detector, n)) for n in plan.sets()},
            attacked={
                (w.dataset, w.threat): self._read(w)
                for w in self._attacks(model, detector)
                if w.threat is not None
            },
            inside="inside",
            outside=list(plan.outside),
            threats=plan.ordered_threats(),
            sides=plan.sides,
            attack=plan.attack_name(),
        )
        return detector_rows(evidence, self._row(model, detector))

    def _accuracy_rows(self, model: str) -> Iterator[Row]:
        if not self._unlabelled():
            value, n = share_right(self.plan.inside, self.shelf.classes[model]["class"])
            value, low, high = wilson(value, n)
            facts = {"dataset": "inside", "metric": "accuracy", "n_in": n}
            yield self._row(model, "", **facts, value=value, low=low, high=high)

    def _row(self, model: str, detector: str, **fields: Any) -> Row:
        empty: dict[str, Any] = {
            "dataset": "",
            "scenario": CLEAN,
            "side": "none",
            "metric": "",
            "value": 0.0,
            "low": None,
            "high": None,
            "n_in": 0,
            "n_out": 0,
            "verdict": "-",
        }
        return Row(model=model, detector=detector, seed=self.plan.seed, **empty | fields)

    def _read(self, whole: Work) -> Arrays:
        arrays, _ = self.folder.read(whole.key(self.plan))
        # a ratio of slopes may be 0 / 0; of scores no metric and no check could make anything
        scores = [v for k, v in arrays.items() if k != "honesty" and v.dtype.kind == "f"]
        if missing := sum(int(np.isnan(v).sum()) for v in scores):
            where = f"{whole.dataset!r}, {whole.condition(self.plan)}"
            raise InputError(
                f"expected numbers as scores of {whole.detectors[0]!r} on {whole.model!r}, got NaN "
                f"{missing} times for {where}: leave it out"
            )
        return arrays

    def _unlabelled(self) -> bool:
        labels = self.plan.inside.labels
        return labels is None or not bool((labels >= 0).any())

    def _weight(self, units: Sequence[Work]) -> float:
        return sum(u.weight(self.plan) for u in units)

    def _images_at_once(self) -> int:
        """As asked for; else as in the run that is continued; else what memory holds."""
        if self.plan.batch_size is not None:
            return self.plan.batch_size
        if isinstance(before := self.folder.said("batch_size"), int) and before > 0:
            return before
        few = self.plan.inside.thin(PROBE).pixels()
        return min(
            images_at_once(ds.values(), few.to(self.plan.model(m).mean))
            for m, ds in self.plan.detectors.items()
        )


def _clean(model: str, detector: str, dataset: str) -> Work:
    return Work(model=model, dataset=dataset, detectors=(detector,))


def _classes(model: str) -> Work:
    return Work(model=model, dataset="inside", detectors=())
