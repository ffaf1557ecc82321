"""manifest.json of an audit: what was done, to what, with what, and what it cost."""

from dataclasses import dataclass, field
from typing import Any

import torch

from rood.analysis.dimensions import dimensions
from rood.detectors.base import Detector
from rood.evaluation.manifest import hardware, versions
from rood.evaluation.plan import Plan, role_of
from rood.evaluation.store import Folder
from rood.registry import paper

SMALL_CODES = 256  # entries of features and logits up to which their Jacobian costs little


@dataclass
class Account:
    """Written when a run begins, and again when it has ended."""

    plan: Plan
    folder: Folder
    more: dict[str, Any]
    forgotten: dict[str, dict[str, Any]] = field(default_factory=dict)  # `dimensions`, by network

    def write(self, *, finished: bool) -> None:
        """Replace the manifest."""
        plan = self.plan
        said = plan.settings()
        device = plan.model(next(iter(plan.detectors))).mean.device
        detectors = {n: d for ds in plan.detectors.values() for n, d in ds.items()}
        facts = {
            "finished": finished,
            "settings": said,
            "models": {m: self._model(m) for m in plan.detectors},
            "data": {
                name: {
                    "role": role_of(name),
                    "source": images.name,
                    "n": len(images),
                    "shape": list(images.shape),
                    "fingerprint": said["data"][name],
                    "notes": list(images.notes),
                }
                for name, images in plan.sets().items()
            },
            "detectors": {n: _about(d) for n, d in detectors.items()},
            "versions": versions(),
            "hardware": hardware(torch.device(device)),
            "batch_size": plan.at_once(),
            "cost": self._cost(),
        }
        notes = [*self.more.get("notes", ()), *self.short_of_memory()]
        self.folder.write_json("manifest.json", facts | self.more | _if_any("notes", notes))

    def short_of_memory(self) -> list[str]:
        """A note for every network and size of batch that memory did not hold."""
        fewer: dict[tuple[str, int], set[str]] = {}
        for said, size in self.folder.facts("images_at_once"):
            fewer.setdefault((said["model"], size), set()).add(said["detector"])
        return [
            f"{model}: memory ran out, and {', '.join(sorted(names))} went on with {size} "
            "images at once, which changes scores by no more than rounding"
            for (model, size), names in fewer.items()
        ]

    def _model(self, name: str) -> dict[str, Any]:
        model = self.plan.model(name)
        facts: dict[str, Any] = {"classes": model.classes}
        facts["fingerprint"] = self.plan.settings()["models"][name]
        if model.head.in_features + model.classes <= SMALL_CODES:
            if name not in self.forgotten:
                x = self.plan.inside.take(torch.tensor([0])).pixels().to(model.mean)
                self.forgotten[name] = dimensions(model, x).to_dict()
            facts["dimensions"] = self.forgotten[name]
        return facts

    def _cost(self) -> dict[str, float]:
        """Sums over the attacks on disk, those of interrupted runs included."""
        total = {"forwards": 0.0, "backwards": 0.0, "seconds": 0.0}
        for _, cost in self.folder.facts("cost"):
            total = {k: total[k] + cost[k] for k in total}
        return total


def _about(d: Detector) -> dict[str, Any]:
    facts = {"gradient": d.gradient, "paper": paper(type(d)), "cost": list(d.cost())}
    return facts | {"settings": d.settings()}


def _if_any(name: str, notes: list[str]) -> dict[str, list[str]]:
    return {name: notes} if notes else {}
