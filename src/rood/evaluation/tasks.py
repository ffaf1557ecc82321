"""A unit of work in words, so that any process that holds the plan can do it, and do it again."""

import hashlib
import json
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from torch import arange

from rood.detectors.base import Detector
from rood.evaluation.manifest import versions
from rood.evaluation.meter import metered
from rood.evaluation.plan import CLEAN, Plan, role_of
from rood.evaluation.unit import Arrays, classes, join, score_clean
from rood.threat import Threat

LOOK = "look."  # before the names of arrays that are only looked at


class Found(NamedTuple):
    """What a unit came to, for one detector."""

    arrays: Arrays
    facts: dict[str, Any]  # cost of an attack; images at once, where memory made them fewer


@dataclass(frozen=True, kw_only=True)
class Work:
    """Some images of one set, clean or attacked, for one detector or for several."""

    model: str
    dataset: str
    detectors: tuple[str, ...]  # clean: share a pass; attacked: one; none: the network's classes
    threat: Threat | None = None  # None: clean
    enough: float = math.inf  # for the attacker
    start: int = 0
    stop: int = 0

    def condition(self, plan: Plan) -> str:
        """As rows have it."""
        return CLEAN if self.threat is None else f"{plan.attack_name()} {self.threat}"

    def what(self) -> str:
        """In a word or two, for whoever watches."""
        if self.threat is None:
            return "clean scores" if self.detectors else "accuracy"
        return self.detectors[0]

    def key(self, plan: Plan) -> tuple[str, ...]:
        """Where the scores of the whole set lie, for one detector."""
        return ("scores", self.model, *self.detectors, f"{self.dataset} {self.condition(plan)}")

    def about(self, plan: Plan) -> dict[str, str]:
        """What the file of the whole set says of itself."""
        return {
            "model": self.model,
            "detector": self.detectors[0],
            "dataset": self.dataset,
            "role": role_of(self.dataset),
            "condition": self.condition(plan),
        }

    def shards(self, plan: Plan) -> list["Work"]:
        """The same for all images of the set, unit by unit."""
        return [replace(self, start=a, stop=b) for a, b in plan.shards(self.dataset)]

    def whole(self) -> "Work":
        """What is the same in all units of the set."""
        return replace(self, start=0, stop=0)

    def one_by_one(self) -> dict[str, "Work"]:
        """The same for each detector alone, by its name; "" where there is none."""
        return {d: replace(self, detectors=(d,)) for d in self.detectors} or {"": self}

    def weight(self, plan: Plan) -> float:
        """About how long it takes, in clean scores of one image."""
        if self.threat is None:
            return float(self.stop - self.start) * bool(self.detectors)
        forwards, backwards = plan.detectors[self.model][self.detectors[0]].cost()
        steps = getattr(plan.attack, "steps", 40) * getattr(plan.attack, "restarts", 1)
        return (self.stop - self.start) * steps * (forwards + 2 * backwards + 2.0)

    def do(self, plan: Plan) -> dict[str, Found]:
        """What is found, by detector. Reads nothing but the plan and writes nothing."""
        if self.threat is not None:
            return {self.detectors[0]: self._attack(plan, self.threat)}
        images = plan.sets()[self.dataset].take(arange(self.start, self.stop))
        if not self.detectors:
            given = list(classes(plan.model(self.model), images, plan.at_once()))
            return {"": Found(join(given), {})}
        detectors = {d: plan.detectors[self.model][d] for d in self.detectors}
        parts = list(score_clean(detectors, images, plan.at_once()))
        facts = self._memory(next(iter(p.values())) for p in parts)
        return {d: Found({"scores": s}, facts) for d, s in join(parts).items()}

    def _attack(self, plan: Plan, threat: Threat) -> Found:
        whole = plan.attack_unit(self.model, self.detectors[0], self.dataset, threat)
        unit = replace(whole, enough=self.enough, start=self.start, stop=self.stop)
        with metered(unit.detector.model) as cost:
            parts, looks = zip(*unit.run(), strict=True)
        arrays = join(list(parts)) | {LOOK + k: v for k, v in join(list(looks)).items()}
        facts = {"direction": unit.direction, "cost": vars(cost)}
        return Found(arrays, facts | self._memory(p["scores"] for p in parts))

    def _memory(self, parts: Iterable[Any]) -> dict[str, int]:
        """A fact for the manifest where not all images went through at once."""
        largest = max(map(len, parts))
        return {} if largest == self.stop - self.start else {"images_at_once": largest}

    def address(self, plan: Plan) -> str:
        """A hash of all that the results for a set depend on: weights, data, settings, code."""
        said = plan.settings()
        facts: dict[str, Any] = {
            "versions": _versions(),
            "device": plan.model(self.model).mean.device.type,
            "network": said["models"][self.model],
            "data": said["data"][self.dataset],
            "detectors": [
                [said["detectors"][self.model][d], _code(plan.detectors[self.model][d])]
                for d in self.detectors
            ],
        }
        if self.threat is not None:
            facts |= {
                "attack": said["attack"],
                "threat": str(self.threat),
                "purpose": [said["seed"], self.model, *self.detectors, self.dataset],
                "enough": self.enough,
                "exemplars": said["data"]["calibrate"],
                "other side": said["data"][plan.opposite(self.dataset)],
                "further": self.threat in plan.largest(),
            }
            if not (module := type(plan.attack).__module__).startswith("rood."):
                facts["code"] = _hash(module)  # of ours the version tells
        return hashlib.sha256(json.dumps(facts, default=str).encode()).hexdigest()[:40]


_versions = cache(versions)


def _code(detector: Detector) -> list[str]:
    """Hashes of the files that define the detector and what is inside it: a formula may change."""
    return sorted({_hash(type(m).__module__) for m in detector.modules()})


@cache
def _hash(module: str) -> str:
    file = getattr(sys.modules.get(module), "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] if file else module
