"""Finished units: on the shelf until their image set is whole, with ROOD_CACHE for good.

A unit's file is named by a hash of what it depends on (`Work.address`): a run that was killed goes
on in the middle of a set, and with a cache no run repeats what another one has done.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rood._files import expanded
from rood.data.cache import VARIABLE as CACHE
from rood.evaluation.plan import Plan
from rood.evaluation.store import Folder, said_plainly
from rood.evaluation.tasks import LOOK, Found, Work
from rood.evaluation.unit import Arrays, join

ONLY_SCORES = ("cost", "images_at_once")  # facts that the file of examples does not repeat


@dataclass
class Shelf:
    """The results of one run, unit by unit, and as whole files as soon as they can be."""

    plan: Plan
    folder: Folder
    classes: dict[str, Arrays] = field(default_factory=dict)  # of the inside images, by network
    _left: dict[Work, set[Work]] = field(default_factory=dict)  # by set: its unfinished units
    _addresses: dict[Work, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        cache = os.environ.get(CACHE)
        self._shared = bool(cache)
        self._units = Folder(expanded(cache) if cache else self.folder.path)

    def has(self, whole: Work) -> bool:
        """Whether all of a set is known, for one detector."""
        if not whole.detectors:
            return whole.model in self.classes
        return self.folder.has(whole.key(self.plan))

    def missing(self, whole: Work) -> list[Work]:
        """The units of a set, for one detector, that nobody has done yet."""
        if self.has(whole):
            return []
        left = [u for u in whole.shards(self.plan) if not self._units.has(self._place(u))]
        self._left[whole] = set(left)
        if not left:  # it lay in the cache, or a kill came before it was put together
            self._join(whole)
        return left

    def put(self, work: Work, found: dict[str, Found]) -> None:
        """Keep what a unit came to; the last one of a set completes the set's file."""
        for name, unit in work.one_by_one().items():
            left = self._left[unit.whole()]
            left.discard(unit)
            if left or self._shared:
                with self._alone():
                    self._units.write(self._place(unit), *found[name])
            if not left:
                self._join(unit.whole(), {unit: found[name]})

    def clear(self) -> None:
        """Every set is whole: what is left of units is of no use, such as those of another size."""
        with said_plainly(self.folder.path):
            shutil.rmtree(self.folder.path / "units", ignore_errors=True)

    def _join(self, whole: Work, known: dict[Work, Found] | None = None) -> None:
        """Write the files of a whole set from its units, in the order of the images."""
        units = whole.shards(self.plan)
        parts = [(known or {}).get(u) or self._read(u) for u in units]
        arrays = join([p.arrays for p in parts])
        if not whole.detectors:
            self.classes[whole.model] = arrays
            return
        key, facts = whole.key(self.plan), whole.about(self.plan) | _sum([p.facts for p in parts])
        if looks := {k.removeprefix(LOOK): v for k, v in arrays.items() if k.startswith(LOOK)}:
            fewer = {k: v for k, v in facts.items() if k not in ONLY_SCORES}
            self.folder.write(("examples", *key[1:]), looks, fewer)
        scores = {k: v for k, v in arrays.items() if not k.startswith(LOOK)}
        self.folder.write(key, scores, facts)  # last: it is the mark
        if not self._shared:
            for unit in units:
                self._units.remove(self._place(unit))

    def _place(self, unit: Work) -> tuple[str, str]:
        whole = unit.whole()
        if whole not in self._addresses:
            self._addresses[whole] = whole.address(self.plan)
        return "units", f"{self._addresses[whole]}-{unit.start}-{unit.stop}"

    def _read(self, unit: Work) -> Found:
        arrays, facts = self._units.read(self._place(unit))
        plain = {"direction"}
        return Found(arrays, {k: v if k in plain else json.loads(v) for k, v in facts.items()})

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Two runs that share a cache do not write the same file at the same time."""
        if not self._shared:
            yield
            return
        with said_plainly(self._units.path):
            self._units.path.mkdir(parents=True, exist_ok=True)
            # not ".lock": that one is held by this very run where its folder is the cache too
            lock = (self._units.path / ".units.lock").open("w")
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _sum(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The facts of all units of a set as one: costs add up, of batches the smallest counts."""
    facts = dict(parts[0])
    if costs := [p["cost"] for p in parts if "cost" in p]:
        facts["cost"] = {k: sum(c[k] for c in costs) for k in costs[0]}
    if sizes := [p["images_at_once"] for p in parts if "images_at_once" in p]:
        facts["images_at_once"] = min(sizes)
    return facts
