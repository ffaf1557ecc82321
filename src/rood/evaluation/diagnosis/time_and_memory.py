"""How long will an audit take, and how much memory?"""

from collections.abc import Iterator
from contextlib import suppress

import torch
from torch.autograd.graph import saved_tensors_hooks

from rood.attacks.base import value_and_gradient
from rood.detectors import Energy
from rood.errors import CapabilityError, NotFittedError
from rood.evaluation.batching import images_at_once
from rood.evaluation.diagnosis.base import Diagnosis, Setup, SetupCheck, Subject
from rood.evaluation.effort import Pace
from rood.evaluation.time_limit import FEWEST, choose, measured
from rood.goals import look_in
from rood.shapes import Images

ANY = "100000h"  # a limit that nothing passes
LONG = 3600  # seconds
ONE_GRADIENT = 3.0  # forward passes
VARIANTS = 2  # surrogates of a detector that is not fitted yet, about


class TimeAndMemory(SetupCheck):
    """Estimated from a short attack on the energy and the passes that each detector needs."""

    place = 14
    estimates = True

    def look(self, setup: Setup) -> Iterator[Diagnosis]:
        seconds = sum(_seconds(subject, setup) for subject in setup.subjects)
        memory, device = max(_memory(subject) for subject in setup.subjects)
        n = len({name for detectors in setup.detectors.values() for name in detectors})
        found = (
            f"at most about {_words(seconds)} and {memory // 2**20} MB of memory on {device} for "
            f"{n} detectors, {len(setup.threats)} budgets and {1 + len(setup.outside)} image sets"
        )
        if seconds > LONG:
            yield self.warn(found, "--time 10m chooses what fits into ten minutes")
        else:
            yield self.ok(found)


def _seconds(subject: Subject, setup: Setup) -> float:
    if not setup.threats:
        return 0.0
    x = subject.some.thin(FEWEST).pixels().to(subject.model.mean)
    pace = measured(Energy(subject.model), x, setup.threats[0])
    each = {}
    for name, detector in setup.detectors[subject.name].items():
        forwards, backwards = detector.cost()
        variants = VARIANTS
        with suppress(NotFittedError):
            variants = len(look_in(detector).variants)
        factor = (forwards + 2 * backwards + 2.0) / ONE_GRADIENT
        each[name] = (Pace(factor * pace.call, factor * pace.image), variants)
    sets, threats = 1 + len(setup.outside), len(setup.threats)
    sizes = [len(setup.inside), *map(len, setup.outside.values())]
    limit = min(setup.limit or max(sizes), max(sizes))
    return choose(ANY, 0.0, each, sets, threats, setup.attack, limit).seconds


def _memory(subject: Subject) -> tuple[int, str]:
    """Bytes for the weights and for what a gradient of one batch keeps."""
    model = subject.model
    x = subject.some.thin(2).pixels().to(model.mean)
    weights = {p.data_ptr(): p.numel() * p.element_size() for p in model.parameters()}
    kept = _kept(subject, x, set(weights)) / len(x)
    return int(sum(weights.values()) + kept * images_at_once([Energy(model)], x)), x.device.type


def _kept(subject: Subject, x: Images, weights: set[int]) -> int:
    seen: dict[int, int] = {}

    def pack(t: torch.Tensor) -> torch.Tensor:
        if t.data_ptr() not in weights:
            seen[t.data_ptr()] = t.numel() * t.element_size()
        return t

    with saved_tensors_hooks(pack, lambda t: t), suppress(CapabilityError):
        value_and_gradient(look_in(Energy(subject.model)), x)
    return sum(seen.values())


def _words(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
