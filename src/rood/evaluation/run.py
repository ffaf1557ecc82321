"""Carry out a plan, piece by piece, on one machine; a second run of it continues the first."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from rood.analysis.dimensions import dimensions
from rood.citations import paper
from rood.detectors.base import Detector
from rood.evaluation.folder import Folder
from rood.evaluation.manifest import full_precision, hardware, versions
from rood.evaluation.meter import metered
from rood.evaluation.plan import CLEAN, Plan
from rood.evaluation.results import Row
from rood.evaluation.tables import Evidence, detector_rows
from rood.evaluation.unit import Arrays, AttackUnit, Role, accuracy, join, score_clean
from rood.metrics import threshold_at_tpr, wilson

SMALL_CODES = 256  # entries of features and logits up to which their Jacobian costs little


@dataclass(frozen=True)
class Step:
    """How far the run is, in a unit that grows about evenly with time, and rows just written."""

    label: str
    done: float
    total: float
    rows: tuple[Row, ...] = ()


def run(plan: Plan, out: Path, about: Mapping[str, Any] | None = None) -> Iterator[Step]:
    """Everything the plan asks for, written to `out` as it is made; yields after every batch."""
    return Run(plan, Folder(out), dict(about or {})).steps()


@dataclass
class Run:
    """One run of a plan into a folder."""

    plan: Plan
    folder: Folder
    about: dict[str, Any] = field(default_factory=dict)  # more for the manifest
    forgotten: dict[str, dict[str, Any]] = field(default_factory=dict)  # `dimensions`, by network

    def steps(self) -> Iterator[Step]:
        """See `run`."""
        with full_precision(), self.folder.opened(self.plan.settings()):
            self._write_manifest(finished=False)
            log = self.folder.row_log()
            done, total = 0.0, self._work_left()
            for model, detectors in self.plan.detectors.items():
                for work in self._score_clean(model):
                    done += work
                    yield Step(f"{model}: clean scores", done, total)
                rows = tuple(self._accuracy_rows(model))
                log.append(rows)
                yield Step(f"{model}: accuracy", done, total, rows)
                for name in detectors:
                    for work in self._attack(model, name):
                        done += work
                        yield Step(f"{model}: {name}", done, total)
                    rows = tuple(self._rows(model, name))
                    log.append(rows)
                    yield Step(f"{model}: {name}", done, total, rows)
            log.end()
            self._write_manifest(finished=True)

    def _score_clean(self, model: str) -> Iterator[float]:
        """Clean scores of every set, one forward pass for all detectors whose file is missing."""
        for name, images in self.plan.sets().items():
            detectors = {
                d: detector
                for d, detector in self.plan.detectors[model].items()
                if not self.folder.has(_scores_key(model, d, name, CLEAN))
            }
            if not detectors:
                continue
            parts = []
            for part in score_clean(detectors, images, self.plan.batch_size):
                parts.append(part)
                yield float(len(next(iter(part.values()))))
            for d, scores in join(parts).items():
                facts = self._facts(model, d, name, CLEAN)
                self.folder.write(_scores_key(model, d, name, CLEAN), {"scores": scores}, facts)

    def _attack(self, model: str, detector: str) -> Iterator[float]:
        for name, unit in self.plan.attack_units(model, detector):
            scenario = self._scenario(unit)
            key = _scores_key(model, detector, name, scenario)
            if self.folder.has(key):
                continue
            unit = replace(unit, enough=self._enough(model, detector, unit.role))
            parts, looks = [], []
            with metered(unit.detector.model) as cost:
                for part, look in unit.run():
                    parts.append(part)
                    looks.append(look)
                    yield len(part["scores"]) * _weight(unit)
            facts = self._facts(model, detector, name, scenario) | {"direction": unit.direction}
            self.folder.write(("examples", *key[1:]), join(looks), facts)
            self.folder.write(
                key, join(parts), facts | {"cost": vars(cost)}
            )  # last: it is the mark

    def _enough(self, model: str, detector: str, role: Role) -> float:
        """Beyond every clean image of the other side and the threshold, no metric changes."""
        threshold = threshold_at_tpr(self._scores(model, detector, "calibrate", CLEAN)["scores"])
        if role == "inside":
            clean = [self._scores(model, detector, n, CLEAN)["scores"] for n in self.plan.outside]
            return max(threshold, *(float(s.max()) for s in clean))
        inside = self._scores(model, detector, "inside", CLEAN)["scores"]
        return -min(threshold, float(inside.min()))

    def _rows(self, model: str, detector: str) -> Iterator[Row]:
        plan = self.plan
        evidence = Evidence(
            calibrate=self._scores(model, detector, "calibrate", CLEAN),
            clean={n: self._scores(model, detector, n, CLEAN) for n in plan.sets()},
            attacked={
                (n, u.threat): self._scores(model, detector, n, self._scenario(u))
                for n, u in plan.attack_units(model, detector)
            },
            inside="inside",
            outside=list(plan.outside),
            threats=plan.ordered_threats(),
            sides=plan.sides,
            attack=plan.attack_name(),
        )
        return detector_rows(evidence, self._row(model, detector))

    def _accuracy_rows(self, model: str) -> list[Row]:
        right, n = accuracy(self.plan.model(model), self.plan.inside, self.plan.batch_size)
        if n == 0:
            return []
        value, low, high = wilson(right, n)
        facts = {"dataset": "inside", "metric": "accuracy", "n_in": n}
        return [self._row(model, "", **facts, value=value, low=low, high=high)]

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

    def _scenario(self, unit: AttackUnit) -> str:
        return f"{self.plan.attack_name()} {unit.threat}"

    def _facts(self, model: str, detector: str, dataset: str, condition: str) -> dict[str, str]:
        role = "inside" if dataset in ("inside", "calibrate") else "outside"
        facts = {"model": model, "detector": detector, "dataset": dataset}
        return facts | {"role": role, "condition": condition}

    def _scores(self, model: str, detector: str, dataset: str, condition: str) -> Arrays:
        return self.folder.read(_scores_key(model, detector, dataset, condition))[0]

    def _work_left(self) -> float:
        plan = self.plan
        total = 0.0
        for model, detectors in plan.detectors.items():
            for name, images in plan.sets().items():
                keys = [_scores_key(model, d, name, CLEAN) for d in detectors]
                total += len(images) * (not all(map(self.folder.has, keys)))
            for d in detectors:
                for name, unit in plan.attack_units(model, d):
                    if not self.folder.has(_scores_key(model, d, name, self._scenario(unit))):
                        total += len(unit.images) * _weight(unit)
        return total

    def _write_manifest(self, *, finished: bool) -> None:
        plan = self.plan
        device = plan.model(next(iter(plan.detectors))).mean.device
        detectors = {n: d for ds in plan.detectors.values() for n, d in ds.items()}
        self.folder.write_json(
            "manifest.json",
            {
                "finished": finished,
                "settings": plan.settings(),
                "models": {m: self._about_model(m) for m in plan.detectors},
                "data": {
                    name: {
                        "role": self._facts("", "", name, "")["role"],
                        "source": images.name,
                        "n": len(images),
                        "shape": list(images.shape),
                        "fingerprint": images.fingerprint(),
                        "notes": list(images.notes),
                    }
                    for name, images in plan.sets().items()
                },
                "detectors": {n: _about(d) for n, d in detectors.items()},
                "versions": versions(),
                "hardware": hardware(torch.device(device)),
                "cost": self._cost(),
            }
            | self.about,
        )

    def _about_model(self, name: str) -> dict[str, Any]:
        model = self.plan.model(name)
        facts: dict[str, Any] = {"classes": model.classes, "fingerprint": model.fingerprint()}
        if model.head.in_features + model.classes <= SMALL_CODES:
            if name not in self.forgotten:
                x = self.plan.inside.take(torch.tensor([0])).pixels().to(model.mean)
                self.forgotten[name] = dimensions(model, x).to_dict()
            facts["dimensions"] = self.forgotten[name]
        return facts

    def _cost(self) -> dict[str, float]:
        """Sums over the attacks on disk, those of interrupted runs included."""
        total = {"forwards": 0.0, "backwards": 0.0, "seconds": 0.0}
        for cost in self.folder.facts("cost"):
            total = {k: total[k] + cost[k] for k in total}
        return total


def _about(d: Detector) -> dict[str, Any]:
    facts = {"gradient": d.gradient, "paper": paper(type(d)), "cost": list(d.cost())}
    return facts | {"settings": d.settings()}


def _scores_key(model: str, detector: str, dataset: str, condition: str) -> tuple[str, ...]:
    return ("scores", model, detector, f"{dataset} {condition}")


def _weight(unit: AttackUnit) -> float:
    """About how much longer than a clean score one image takes."""
    forwards, backwards = unit.detector.cost()
    steps = getattr(unit.attack, "steps", 40) * getattr(unit.attack, "restarts", 1)
    return steps * (forwards + 2 * backwards + 2.0)
