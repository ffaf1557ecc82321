"""Carry out a plan, task by task, on any engine; a second run continues the first."""

import json
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from rood._files import expanded
from rood.certify import METHODS
from rood.data.cache import VARIABLE as CACHE
from rood.errors import CapabilityError, InputError, ResultsError, RoodWarning
from rood.evaluation import certificates
from rood.evaluation.batching import PROBE, images_at_once
from rood.evaluation.behaviour import PREFIX, Behaviour, behaviour, packed, renew, same_packed
from rood.evaluation.deadline import Deadline
from rood.evaluation.engines import Engine, Local, Perform
from rood.evaluation.examples import joined
from rood.evaluation.manifest import Manifest, full_precision
from rood.evaluation.plan import EVERY, Plan, Role, role_of
from rood.evaluation.rows import (
    CERTIFIED,
    CLASSES,
    Arrays,
    Evidence,
    Row,
    accuracy_row,
    detector_rows,
)
from rood.evaluation.schedule import (
    OutOfTime,
    Schedule,
    Unit,
    in_order,
    pairs,
    rows_order,
    unit,
)
from rood.evaluation.steps import Meter, Step
from rood.evaluation.store import Store, readable_errors
from rood.evaluation.tasks import KEPT, LOOK, Found, Task, join, right_ones
from rood.metrics import share_of, threshold_at_tpr
from rood.threat import Threat

BESIDE = ("examples", "adversarial", "radii")  # what may be kept of a set besides its scores
ONLY_SCORES = ("cost", "images_at_once")  # facts that the file of examples does not repeat


def run(plan: Plan, out: Path, engine: Engine | None = None) -> Iterator[Step]:
    """Carry out the plan, writing to `out` as results arrive; yields after every task."""
    return Run(plan, Store(out), engine or Local()).steps()


@dataclass
class Run:
    """One run of a plan into a folder."""

    plan: Plan
    store: Store
    engine: Engine
    waiting: deque[tuple[str, str]] = field(default_factory=deque)  # whose rows come next
    left_out: set[tuple[str, str]] = field(default_factory=set)  # by a time limit
    unbounded: set[tuple[str, str]] = field(default_factory=set)  # (model, detector), not certified
    _works: dict[Task, float] = field(default_factory=dict)

    def steps(self) -> Iterator[Step]:
        """See `run`."""
        with full_precision(), self.store.opened(self.plan.settings()):
            self.plan = replace(self.plan, batch_size=self._images_at_once())
            self._find_bounded()
            found = self._behaviour()
            renew(self.store, found, begun=self.store.begun(), forget=self.store.forget)
            self.finished = Finished(self.plan, self.store, found)
            self.log = self.store.row_log()
            manifest = Manifest(self.plan, self.store)
            manifest.write(finished=False)
            with self.engine.opened(self.plan) as perform:
                yield from self._tasks(perform)
            self.log.end()
            self.finished.clear()
            manifest.write(finished=True, left_out=self.left_out)

    def _find_bounded(self) -> None:
        """What can be certified; a folder with certificates keeps them when an audit continues."""
        before = self.store.said("certify")
        if self.plan.certify is None and before in METHODS and self.plan.certifiable():
            self.plan = replace(self.plan, certify=before)
        if self.plan.certify is None:
            return
        missing = certificates.without_bounds(self.plan)
        said = certificates.sentences(self.plan, missing)
        asked = {(m, d) for m, ds in self.plan.detectors.items() for d in ds}
        if not self.plan.sides and asked <= missing.keys():
            raise CapabilityError(said[0])
        self.unbounded = set(missing)
        about = self.plan.about
        notes = {"notes": [*about.get("notes", ()), *said]} if said else {}
        self.plan = replace(self.plan, about={**about, **notes})

    def _behaviour(self) -> Behaviour:
        plan = self.plan
        return behaviour(plan.detectors, plan.inside, plan.attack, plan.ordered_threats())

    def _tasks(self, perform: Perform) -> Iterator[Step]:
        """First the clean scores, which say what is enough for an attacker; then the attacks."""
        self.left_out = set(self.plan.left_out)
        self.waiting.extend(rows_order(self.plan))
        clean = self._clean_tasks()
        ahead = [t for w in self._attacks_left() for t in w.shards(self.plan)]
        clock = monotonic if self.plan.deadline is None else self.plan.deadline.clock
        self.meter = Meter(
            self._weight([*clean, *ahead]), self._work, self._work, Task.label, clock
        )
        yield self.meter.step("clean scores")
        yield from self._carried_out(perform, clean)
        attacks = self._attack_tasks()
        self.meter.total = self.meter.done + self._weight(attacks)
        if self.plan.deadline is None:
            yield from self._carried_out(perform, attacks)
        else:
            yield from self._in_time(perform, attacks, self.plan.deadline)

    def _in_time(
        self, perform: Perform, tasks: Sequence[Task], deadline: Deadline
    ) -> Iterator[Step]:
        """What the deadline allows; then the rest is left out, whole detectors or budgets."""
        begun = any(all(map(self.finished.has, unit)) for unit in self._units().values())
        schedule = Schedule(deadline, self.meter, begun)
        self.meter.listeners.append(schedule.check)
        with suppress(OutOfTime):
            yield from self._carried_out(perform, schedule.given(tasks), schedule.ended)
        self.meter.listeners.remove(schedule.check)
        for name, sets in self._units().items():
            if not all(map(self.finished.has, sets)):
                self.left_out.add(name)
                for whole in sets:  # not half measured
                    key = whole.key(self.plan)
                    self.store.remove(key)
                    for kind in BESIDE:
                        self.store.remove((kind, *key[1:]))
        self.meter.ended()
        yield from self._rows_due()

    def _units(self) -> dict[Unit, list[Task]]:
        """Image sets to attack, by what is measured whole or not at all."""
        found: dict[Unit, list[Task]] = {}
        for model, detector in self._everyone():
            for whole in self._attacks(model, detector):
                found.setdefault(unit(whole), []).append(whole)
        return found

    def _carried_out(
        self, perform: Perform, tasks: Iterable[Task], ended: Callable[[Task], None] | None = None
    ) -> Iterator[Step]:
        """Tasks end in any order. Rows have one order: each waits for all rows before it."""
        for task, found in perform(tasks, self.meter):
            self.finished.put(task, found)
            self.meter.whole(task)
            if ended is not None:
                ended(task)
            yield self.meter.step()
            yield from self._rows_due()
        yield from self._rows_due()

    def _rows_due(self) -> Iterator[Step]:
        while self.waiting and self._known(*self.waiting[0]):
            model, detector = self.waiting.popleft()
            rows = tuple(self._rows_of(model, detector))
            self.log.append(rows)
            yield self.meter.step(f"{model}: {detector or 'accuracy'}", rows)

    def _rows_of(self, model: str, detector: str) -> Iterator[Row]:
        if detector == CLASSES:
            return self._certain_rows(model)
        return self._rows(model, detector) if detector else self._accuracy_rows(model)

    def _known(self, model: str, detector: str) -> bool:
        """Whether everything needed for the rows of a detector, or of a network, is there."""
        if not detector:
            return self._unlabelled() or self.finished.has(_classes(model))
        names = self.plan.sets() if detector != CLASSES else ()
        clean = [_clean(model, detector, name) for name in names]
        return all(map(self.finished.has, [*clean, *self._attacks(model, detector)]))

    def _clean_tasks(self) -> list[Task]:
        """One forward pass for all detectors whose scores are missing; and predicted classes."""
        tasks = []
        for model, detectors in self.plan.detectors.items():
            for name in self.plan.sets():
                lacking: dict[tuple[int, int], list[str]] = {}
                for d in detectors:
                    for t in self.finished.missing(_clean(model, d, name)):
                        lacking.setdefault((t.start, t.stop), []).append(d)
                tasks += [
                    Task(model=model, dataset=name, detectors=tuple(ds), start=a, stop=b)
                    for (a, b), ds in lacking.items()
                ]
            if not self._unlabelled():
                tasks += self.finished.missing(_classes(model))
        return tasks

    def _attack_tasks(self) -> list[Task]:
        return [
            task
            for whole in self._attacks_left()
            for task in self.finished.missing(self._with_enough(whole))
        ]

    def _attacks_left(self) -> list[Task]:
        """Sets to attack, of which some images have not been attacked yet."""
        by_unit: dict[tuple[str, str, Threat], list[Task]] = {}
        for model, detector in self._everyone():
            for whole in self._attacks(model, detector):
                assert whole.threat is not None
                by_unit.setdefault((model, detector, whole.threat), []).append(whole)
        ordered = [w for key in in_order(self.plan) for w in by_unit.get(key, ())]
        return [w for w in ordered if not self.finished.has(w)]

    def _everyone(self) -> list[tuple[str, str]]:
        """Networks with each detector, then with what is known of the network itself."""
        return [*pairs(self.plan), *((m, CLASSES) for m in self.plan.detectors)]

    def _attacks(self, model: str, detector: str) -> list[Task]:
        """Every set of a detector to certify and to attack."""
        found = self._certificates(model, detector)
        if detector != CLASSES:
            attacked = self.plan.attacked()
            found += [
                Task(model=model, dataset=name, detectors=(detector,), threat=threat)
                for name, threat in attacked
            ]
        return [t for t in found if unit(t) not in self.left_out]

    def _certificates(self, model: str, detector: str) -> list[Task]:
        own, method = detector == CLASSES, self.plan.certify
        if (model, "" if own else detector) in self.unbounded or (own and self._unlabelled()):
            return []
        ds = () if own else (detector,)
        return [
            Task(model=model, dataset=name, detectors=ds, threat=threat, method=method)
            for name, threat in self.plan.bounded()
            if name == "inside" or not own
        ]

    def _with_enough(self, whole: Task) -> Task:
        if whole.method is not None:  # the largest eps of a norm bounds the search for radii
            searched = whole.detectors and whole.threat in self.plan.largest()
            return replace(whole, enough=self._threshold(whole)) if searched else whole
        enough = self._enough(whole.model, whole.detectors[0], role_of(whole.dataset))
        return replace(whole, enough=enough)

    def _threshold(self, whole: Task) -> float:
        calibrate = _clean(whole.model, whole.detectors[0], "calibrate")
        return threshold_at_tpr(self._read(calibrate)["scores"])

    def _enough(self, model: str, detector: str, role: Role) -> float:
        """Beyond every clean image of the other side and the threshold, no metric changes."""
        clean = lambda name: self._read(_clean(model, detector, name))["scores"]
        threshold = threshold_at_tpr(clean("calibrate"))
        if role == "inside":
            return max(threshold, *(float(clean(n).max()) for n in self.plan.outside))
        return -min(threshold, float(clean("inside").min()))

    def _rows(self, model: str, detector: str) -> Iterator[Row]:
        plan = self.plan
        known = [
            ((t.dataset, t.threat), self._read(t), t.method)
            for t in self._attacks(model, detector)
            if t.threat is not None
        ]
        evidence = Evidence(
            clean={n: self._read(_clean(model, detector, n)) for n in plan.sets()},
            attacked={key: read for key, read, method in known if method is None},
            bounds={key: read for key, read, method in known if method is not None},
            outside=list(plan.outside),
            threats=[t for t in plan.ordered_threats() if (detector, str(t)) not in self.left_out],
            sides=plan.sides,
            attack=plan.attack_name(),
            method=plan.certify or "",
            **self._known_classes(model),
        )
        certificates.expect_sandwich(evidence, model, detector)
        return detector_rows(evidence, model, detector, plan.seed)

    def _known_classes(self, model: str) -> dict[str, Any]:
        """Where classes are held out, which ID images have the right predicted class."""
        if self.plan.open_set is None:
            return {}
        given = self.finished.classes[model]["class"]  # its row comes before any detector's
        right, _ = right_ones(self.plan.images(EVERY), given)
        return {"right": right, "classes": self.plan.open_set.classes}

    def _accuracy_rows(self, model: str) -> Iterator[Row]:
        if not self._unlabelled():
            right, groups = right_ones(
                self.plan.images(EVERY), self.finished.classes[model]["class"]
            )
            yield accuracy_row(model, self.plan.seed, share_of(right, groups), right.size)

    def _certain_rows(self, model: str) -> Iterator[Row]:
        for whole in self._attacks(model, CLASSES):
            images = self.plan.images(whole.dataset)
            right, groups = right_ones(images, self._read(whole)["class"])
            row = accuracy_row(model, self.plan.seed, share_of(right, groups), right.size)
            scenario = whole.condition(self.plan)
            yield replace(row, scenario=scenario, side="inside", metric=f"{CERTIFIED}accuracy")

    def _read(self, whole: Task) -> Arrays:
        arrays, _ = self.store.read(whole.key(self.plan))
        # a ratio of slopes may be 0 / 0; scores must be numbers
        scores = [v for k, v in arrays.items() if k != "honesty" and v.dtype.kind == "f"]
        if missing := sum(int(np.isnan(v).sum()) for v in scores):
            where = f"{whole.dataset!r}, {whole.condition(self.plan)}"
            raise InputError(
                f"expected numbers as scores of {whole.name!r} on {whole.model!r}, got NaN "
                f"{missing} times for {where}: leave it out"
            )
        return arrays

    def _unlabelled(self) -> bool:
        labels = self.plan.images(EVERY).labels
        return labels is None or not bool((labels >= 0).any())

    def _work(self, task: Task) -> float:
        if task not in self._works:
            self._works[task] = task.weight(self.plan)
        return self._works[task]

    def _weight(self, tasks: Sequence[Task]) -> float:
        return sum(map(self._work, tasks))

    def _images_at_once(self) -> int:
        """The batch size asked for; else that of the run to continue; else what memory holds."""
        if self.plan.batch_size is not None:
            return self.plan.batch_size
        if isinstance(before := self.store.said("batch_size"), int) and before > 0:
            return before
        few = self.plan.inside.thin(PROBE).pixels()
        return min(
            images_at_once(ds.values(), few.to(self.plan.model(m).mean))
            for m, ds in self.plan.detectors.items()
        )


def _clean(model: str, detector: str, dataset: str) -> Task:
    return Task(model=model, dataset=dataset, detectors=(detector,))


def _classes(model: str) -> Task:
    return Task(model=model, dataset=EVERY, detectors=())


@dataclass
class Finished:
    """Finished tasks: kept until their image set is whole, and with ROOD_CACHE for good.

    The file of a task is named by a hash of what it depends on (`Task.address`): a run that was
    killed continues in the middle of a set, and runs that share a cache share their results. A hash
    does not know what code does: the file says what network and detector did, and is replaced if
    they do something else now.
    """

    plan: Plan
    store: Store
    behaviour: Behaviour
    classes: dict[str, Arrays] = field(default_factory=dict)  # predicted for ID images, by network
    _whole: set[tuple[str, ...]] = field(default_factory=set)  # keys of files that were checked
    _left: dict[Task, set[Task]] = field(default_factory=dict)  # by set: its unfinished tasks
    _addresses: dict[Task, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        cache = os.environ.get(CACHE)
        self._shared = bool(cache)
        self._files = Store(expanded(cache) if cache else self.store.path)

    def has(self, whole: Task) -> bool:
        """Whether all of a set is known, for one detector."""
        if whole.name == CLASSES and whole.method is None:
            return whole.model in self.classes
        key = whole.key(self.plan)
        kept = self.plan.keep and whole.threat is not None and whole.method is None
        if (
            key not in self._whole
            and self._usable(self.store, key)
            and (not kept or self.store.has(("adversarial", *key[1:])))
            and all(self._beside_usable(key, kind) for kind in BESIDE)
        ):
            self._whole.add(key)
        return key in self._whole

    def _beside_usable(self, key: tuple[str, ...], kind: str) -> bool:
        """Whether what lies beside attacked scores, where there is anything, is as written."""
        beside = (kind, *key[1:])
        if not self.store.has(beside) or self.store.intact(beside):
            return True
        self.store.remove(key)  # first: both are made again, after a kill too
        return self._usable(self.store, beside)

    def missing(self, whole: Task) -> list[Task]:
        """The tasks of a set, for one detector, that are still to be done."""
        if self.has(whole):
            return []
        left = [t for t in whole.shards(self.plan) if not self._valid(t)]
        self._left[whole] = set(left)
        if not left:  # all are in the cache, or a kill came before they were joined
            self._join(whole)
        return left

    def put(self, done: Task, found: dict[str, Found]) -> None:
        """Keep what a task found; the last one of a set completes the set's file."""
        for name, task in done.one_by_one().items():
            left = self._left[task.whole()]
            left.discard(task)
            if left or self._shared:
                arrays, facts = found[name]
                with self._alone():
                    self._files.write(self._place(task), arrays | self._probed(task), facts)
            if not left:
                self._join(task.whole(), {task: found[name]})

    def clear(self) -> None:
        """Delete the files of single tasks (such as those of another batch size): all is joined."""
        with readable_errors(self.store.path):
            self.store.folder.remove_tree("units")

    def _join(self, whole: Task, known: dict[Task, Found] | None = None) -> None:
        """Write the files of a whole set from its tasks, in the order of the images."""
        tasks = whole.shards(self.plan)
        parts = [(known or {}).get(t) or self._read(t) for t in tasks]
        arrays = join([p.arrays for p in parts])
        labels = self.plan.images(whole.dataset).label_numbers()
        if whole.name == CLASSES and whole.method is None:
            self.classes[whole.model] = arrays
            told = {"model": whole.model, "dataset": whole.dataset}
            self.store.write(("classes", whole.model), arrays | {"labels": labels}, told)
            return
        key, facts = whole.key(self.plan), whole.about(self.plan) | _sum([p.facts for p in parts])
        if looks := {k.removeprefix(LOOK): v for k, v in arrays.items() if k.startswith(LOOK)}:
            fewer = {k: v for k, v in facts.items() if k not in ONLY_SCORES}
            kept = joined(looks, int(arrays["sign"][0]))
            self.store.write(("examples", *key[1:]), kept, fewer)
        if images := {k.removeprefix(KEPT): v for k, v in arrays.items() if k.startswith(KEPT)}:
            fewer = {k: v for k, v in facts.items() if k not in ONLY_SCORES}
            self.store.write(("adversarial", *key[1:]), images, fewer)
        if "radius" in arrays:
            self.store.write(("radii", *key[1:]), {"radius": arrays.pop("radius")}, facts)
        scores = {k: v for k, v in arrays.items() if not k.startswith((LOOK, KEPT))}
        if (groups := self.plan.sets()[whole.dataset].group_numbers()) is not None:
            scores["groups"] = groups
        if (labels >= 0).any():
            scores["labels"] = labels
        self.store.write(key, scores, facts)  # last: its presence says that the set is whole
        if not self._shared:
            for task in tasks:
                self._files.remove(self._place(task))

    def _place(self, task: Task) -> tuple[str, str]:
        whole = task.whole()
        if whole not in self._addresses:
            self._addresses[whole] = whole.address(self.plan)
        return "units", f"{self._addresses[whole]}-{task.start}-{task.stop}"

    def _probed(self, task: Task) -> Arrays:
        attacked = task.threat is not None
        return packed(self.behaviour, task.model, task.detectors, attacked=attacked)

    def _valid(self, task: Task) -> bool:
        """Whether the task is done, by a network and a detector that do what these do."""
        if not self._usable(self._files, place := self._place(task)):
            return False
        return same_packed(self._files.read(place, PREFIX)[0], self._probed(task))

    def _usable(self, store: Store, key: tuple[str, ...]) -> bool:
        """Whether a file is there and holds what was written; a damaged one is removed."""
        if not store.has(key):
            return False
        if not (intact := store.intact(key)):
            text = f"a file of scores in {store.path} was changed or damaged: it is measured anew"
            warnings.warn(text, RoodWarning, stacklevel=2)
            store.remove(key)
        return intact

    def _read(self, task: Task) -> Found:
        if not self._valid(task):  # it was, when this run began
            raise ResultsError(
                f"another run with the same {CACHE} measures another {task.label()} under the same "
                "name: wait for it or set another folder"
            )
        arrays, facts = self._files.read(self._place(task))
        arrays = {k: v for k, v in arrays.items() if not k.startswith(PREFIX)}
        said = {k: v if k == "direction" else json.loads(v) for k, v in facts.items()}
        return Found(arrays, said)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Two runs that share a cache do not write the same file at the same time."""
        if not self._shared:
            yield
            return
        # not ".lock": this run itself holds that one where its folder is the cache too
        with readable_errors(self._files.path), self._files.folder.locked(".units.lock", wait=True):
            yield


def _sum(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The facts of all tasks of a set as one: costs add up, of batch sizes the smallest counts."""
    facts = dict(parts[0])
    if costs := [p["cost"] for p in parts if "cost" in p]:
        facts["cost"] = {k: sum(c[k] for c in costs) for k in costs[0]}
    if sizes := [p["images_at_once"] for p in parts if "images_at_once" in p]:
        facts["images_at_once"] = min(sizes)
    return facts
