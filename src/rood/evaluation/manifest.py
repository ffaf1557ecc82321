"""manifest.json: what must be known to repeat an audit, and what it cost."""

import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib import metadata
from typing import Any

import torch

from rood.analysis.dimensions import dimensions
from rood.data.base import ImageSet
from rood.detectors.base import Detector
from rood.errors import CapabilityError
from rood.evaluation.deadline import too_short
from rood.evaluation.plan import Plan, role_of
from rood.evaluation.store import Store
from rood.registry import paper
from rood.version import __version__

SMALL_CODES = 256  # entries of features and logits up to which their Jacobian costs little
LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "safetensors", "pillow")


def versions() -> dict[str, str]:
    """rood, Python and the libraries that numbers depend on."""
    found = {"rood": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "?"
    return found


def hardware(device: torch.device) -> dict[str, Any]:
    """The device, how it computes, and the most memory that was in use so far."""
    facts: dict[str, Any] = {
        "device": str(device),
        "machine": platform.machine(),
        "system": platform.system(),
        "threads": torch.get_num_threads(),
        "tf32": torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32,
        "peak_memory_mb": peak_memory() // 2**20,
    }
    if device.type == "cuda":
        facts["name"] = torch.cuda.get_device_name(device)
        facts["peak_device_memory_mb"] = torch.cuda.max_memory_allocated(device) // 2**20
    return facts


def peak_memory() -> int:
    """Peak main memory of this process in bytes; 0 where the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if platform.system() == "Darwin" else 1024 * most


@contextmanager
def full_precision() -> Iterator[None]:
    """Full float32 (no TF32) and deterministic results inside the block."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = False, False, True
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = before


@dataclass
class Manifest:
    """The manifest of one run: written when it begins, and again when it has ended."""

    plan: Plan
    store: Store

    def write(self, *, finished: bool, left_out: Iterable[tuple[str, str]] = ()) -> None:
        """Replace manifest.json; `left_out` names the detectors and budgets without time."""
        plan, said = self.plan, self.plan.settings()
        detectors = {n: d for ds in plan.detectors.values() for n, d in ds.items()}
        facts = {
            "finished": finished,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "settings": said,
            "models": self._models,
            "data": {
                name: {
                    "role": role_of(name),
                    "source": images.name,
                    "n": len(images),
                    "shape": list(images.shape),
                    "fingerprint": said["data"][name],
                    "notes": [*images.notes, *_group_notes(images)],
                    **({"classes": list(images.classes)} if images.classes else {}),
                }
                for name, images in plan.sets().items()
            },
            "detectors": {n: _about(d) for n, d in detectors.items()},
            "versions": versions(),
            "hardware": hardware(plan.model(next(iter(plan.detectors))).mean.device),
            "batch_size": plan.at_once(),
            **({"certify": plan.certify} if plan.certify else {}),
            "cost": self._cost(),
        }
        if finished:
            facts["rows_sha256"] = self.store.rows_checksum()
        notes = [*plan.about.get("notes", ()), *self._short_of_memory()]
        more = dict(plan.about)
        if "time" in more and (late := sorted(left_out)):
            more["time"] = more["time"] | {"left_out": late}
            to = "attack" if plan.sides else "certify"
            notes.append(too_short(more["time"]["asked"], late, to))
        more |= {"notes": notes} if notes else {}
        self.store.write_json("manifest.json", facts | more)

    @cached_property  # a Jacobian for each network
    def _models(self) -> dict[str, dict[str, Any]]:
        return {m: self._model(m) for m in self.plan.detectors}

    def _model(self, name: str) -> dict[str, Any]:
        model = self.plan.model(name)
        facts = {"classes": model.classes, "fingerprint": self.plan.settings()["models"][name]}
        if model.head.in_features + model.classes <= SMALL_CODES:
            x = self.plan.inside.take(torch.tensor([0])).pixels().to(model.mean)
            with suppress(CapabilityError):  # a network without gradient has no Jacobian
                facts["dimensions"] = dimensions(model, x).to_dict()
        return facts

    def _short_of_memory(self) -> list[str]:
        """A note for every network and batch size that did not fit into memory."""
        fewer: dict[tuple[str, int], set[str]] = {}
        for said, size in self.store.facts("images_at_once", int):
            fewer.setdefault((said["model"], size), set()).add(said["detector"])
        return [
            f"{model}: memory ran out, and {', '.join(sorted(names))} continued with {size} "
            "images at once, which changes scores by no more than rounding"
            for (model, size), names in fewer.items()
        ]

    def _cost(self) -> dict[str, float]:
        """Sums over the attacks on disk, those of interrupted runs included."""
        total = {"forwards": 0.0, "backwards": 0.0, "seconds": 0.0}
        for _, cost in self.store.facts("cost", dict[str, float]):
            total = {k: total[k] + cost.get(k, 0.0) for k in total}
        return total


def _group_notes(images: ImageSet) -> list[str]:
    n = len(set(images.groups))
    return [f"{n} groups of images; intervals resample groups"] if n else []


def _about(d: Detector) -> dict[str, Any]:
    facts = {"gradient": d.gradient, "paper": paper(type(d)), "cost": list(d.cost())}
    return facts | {"settings": d.settings()}
