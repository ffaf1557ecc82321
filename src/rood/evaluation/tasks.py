"""Tasks of an audit: each is small, and any process that holds the plan can do it.

A task reads only the plan and returns arrays; repeating it gives the same arrays.
"""

import hashlib
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rood.attacks.base import Attack, Best, Goal, worst_origin
from rood.attacks.random_search import RandomSearch
from rood.attacks.square import Square
from rood.attacks.worst_of import WorstOf
from rood.certify import Method
from rood.data.base import ImageSet, spaced
from rood.detectors import score_all
from rood.detectors.base import Detector
from rood.errors import CapabilityError, InputError
from rood.evaluation import certificates
from rood.evaluation.batching import in_parts
from rood.evaluation.effort import Counts, Pace, of_attack, usual, work
from rood.evaluation.examples import joined
from rood.evaluation.manifest import versions
from rood.evaluation.plan import Plan, Role, role_of
from rood.evaluation.probes import CONTROLS, DRAWS, FEW, Examination, Examined, tier
from rood.evaluation.rows import CLASSES, CLEAN, Arrays
from rood.evaluation.steps import Tick
from rood.goals import look_in, look_out
from rood.models.model import Model, Outputs
from rood.seeds import Noise, generator
from rood.shapes import Images, Scores
from rood.threat import LEVELS, Threat, on_the_grid, to_8_bit

EXEMPLARS = 200  # ID images, of which an attack aims at the most confident of each class
LAYOUT = 2  # of what a task returns: those of an earlier one cannot be joined
LOOK = "look."  # prefix of the arrays that hold attacked images for the page
KEPT = "kept."  # prefix of those that hold all attacked images in 8 bits


class Found(NamedTuple):
    """What a task found for one detector."""

    arrays: Arrays
    facts: dict[str, Any]  # cost of an attack; images at once, where memory made them fewer


@dataclass(frozen=True, kw_only=True)
class Task:
    """Some images of one set, clean or attacked, for one detector or for several."""

    model: str
    dataset: str
    detectors: tuple[str, ...]  # clean: share a pass; attacked: one; none: the network's classes
    threat: Threat | None = None  # None: clean
    method: Method | None = None  # bounds everything within the threat; None: attacks
    enough: float = math.inf  # for the attacker; of a certificate: the threshold, for radii
    start: int = 0
    stop: int = 0

    @property
    def name(self) -> str:
        """The detector that is attacked or certified; else what is known of the network itself."""
        return self.detectors[0] if self.detectors else CLASSES

    def condition(self, plan: Plan) -> str:
        """The `scenario` of its rows."""
        if self.threat is None:
            return CLEAN
        return f"{self.method or plan.attack_name()} {self.threat}"

    def label(self) -> str:
        """What a person sees while it is done."""
        what = "clean scores" if self.threat is None and self.detectors else self.name
        against = "" if self.threat is None else f", {self.threat}"
        against += "" if self.method is None else f" by {self.method}"
        return f"{self.model}: {what}, {self.dataset}{against}"

    def key(self, plan: Plan) -> tuple[str, ...]:
        """Where the scores of the whole set are stored, for one detector."""
        kind = "scores" if self.method is None else "bounds"
        return (kind, self.model, *self.detectors, f"{self.dataset} {self.condition(plan)}")

    def about(self, plan: Plan) -> dict[str, str]:
        """Facts that the file of the whole set holds about itself."""
        return {
            "model": self.model,
            "detector": "".join(self.detectors),
            "dataset": self.dataset,
            "role": role_of(self.dataset),
            "condition": self.condition(plan),
        }

    def shards(self, plan: Plan) -> list["Task"]:
        """The tasks that together cover all images of the set."""
        size = None if self.method is None else certificates.AT_ONCE
        return [replace(self, start=a, stop=b) for a, b in plan.shards(self.dataset, size)]

    def whole(self) -> "Task":
        """What all tasks of the set have in common."""
        return replace(self, start=0, stop=0)

    def one_by_one(self) -> dict[str, "Task"]:
        """The same for each detector alone, by its name; "" where there is none."""
        return {d: replace(self, detectors=(d,)) for d in self.detectors} or {"": self}

    def weight(self, plan: Plan, pace: Pace | None = None) -> float:
        """About how long it takes, in forward passes of one image or in the unit of a pace."""
        n = self.stop - self.start
        if self.method is not None:
            every = len(plan.images(self.dataset))
            more = certificates.bounds_of_radii(every, self.start, self.stop)
            return (n + more * self.searches()) * certificates.PASSES[self.method]
        detectors = [plan.detectors[self.model][d] for d in self.detectors]
        if self.threat is None:
            passes = 1 + sum(sum(d.cost()) for d in detectors if d.cost() != (1, 0))
            return passes * work(n, gradient=False)
        share = n / len(plan.sets()[self.dataset])
        controls, few = share * CONTROLS, share * FEW if self.threat in plan.largest() else 0.0
        counts = Counts(n, min(n, controls), min(n, few))
        goal = look_in(detectors[0])
        return of_attack(pace or usual(detectors[0]), plan.attack, len(goal.variants), counts)

    def searches(self) -> bool:
        """Whether a certificate looks for radii: where the threshold is given."""
        return self.method is not None and math.isfinite(self.enough)

    def do(self, plan: Plan, tick: Tick | None = None) -> dict[str, Found]:
        """What is found, by detector. Reads nothing but the plan and writes nothing.

        tick: hears of the work that is done, in forward passes of one image.
        """
        if self.threat is not None and self.method is not None:
            return {"".join(self.detectors): self._bounded(plan, self.threat, self.method, tick)}
        with ticking(plan.model(self.model), tick):
            return self._do(plan)

    def _do(self, plan: Plan) -> dict[str, Found]:
        if self.threat is not None:
            return {self.detectors[0]: self._attack(plan, self.threat)}
        images = plan.images(self.dataset).take(torch.arange(self.start, self.stop))
        if not self.detectors:
            given = list(classes(plan.model(self.model), images, plan.at_once()))
            return {"": Found(join(given), {})}
        detectors = {d: plan.detectors[self.model][d] for d in self.detectors}
        parts = list(score_clean(detectors, images, plan.at_once()))
        facts = self._memory(next(iter(p.values())) for p in parts)
        return {d: Found({"scores": s}, facts) for d, s in join(parts).items()}

    def _attack(self, plan: Plan, threat: Threat) -> Found:
        (detector,), sets = self.detectors, plan.sets()
        attack = SetAttack(
            plan.detectors[self.model][detector],
            sets[self.dataset],
            role_of(self.dataset),
            plan.attack,
            threat,
            purpose=(self.model, detector, self.dataset, str(threat)),
            seed=plan.seed,
            batch_size=plan.at_once(),
            enough=self.enough,
            exemplars=plan.calibrate,
            other_side=sets[plan.opposite(self.dataset)] if threat in plan.largest() else None,
            start=self.start,
            stop=self.stop,
            keep=plan.keep,
        )
        with metered(attack.detector.model) as cost:
            parts, looks = zip(*attack.run(), strict=True)
        arrays = join(list(parts)) | {LOOK + k: v for k, v in join(list(looks)).items()}
        facts = {"direction": attack.direction, "cost": vars(cost)}
        return Found(arrays, facts | self._memory(p["scores"] for p in parts))

    def _bounded(self, plan: Plan, threat: Threat, method: Method, tick: Tick | None) -> Found:
        begun, images = perf_counter(), plan.images(self.dataset)
        here: Any = {"start": self.start, "stop": self.stop, "tick": tick}
        if self.detectors:
            detector = plan.detectors[self.model][self.detectors[0]]
            found = certificates.score_bounds(detector, images, threat, method, **here)
            if self.searches():
                found |= certificates.radii(detector, images, threat, method, self.enough, **here)
        else:
            model = plan.model(self.model)
            found = certificates.certain_classes(model, images, threat, method, **here)
        return Found(found, {"cost": {"seconds": perf_counter() - begun}})

    def _memory(self, parts: Iterable[Any]) -> dict[str, int]:
        """A fact for the manifest where memory did not hold all images at once."""
        largest = max(map(len, parts))
        return {} if largest == self.stop - self.start else {"images_at_once": largest}

    def address(self, plan: Plan) -> str:
        """A hash of all that the results for a set depend on: weights, data, settings, code."""
        said = plan.settings()
        facts: dict[str, Any] = {
            "versions": _versions(),
            "layout": LAYOUT,
            "device": plan.model(self.model).mean.device.type,
            "network": said["models"][self.model],
            "data": said["data"].get(self.dataset) or plan.images(self.dataset).fingerprint(),
            "probe images": said["data"]["inside"],
            "detectors": [
                [said["detectors"][self.model][d], _code(plan.detectors[self.model][d])]
                for d in self.detectors
            ],
        }
        if self.method is not None:
            searched = {"threshold": self.enough} if self.searches() else {}
            return _digest(facts | searched | {"method": self.method, "threat": str(self.threat)})
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
            if plan.keep:
                facts["keep"] = True
            if not (module := type(plan.attack).__module__).startswith("rood."):
                facts["code"] = _hash(module)  # ours change with rood's version
        return _digest(facts)


def _digest(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, default=str).encode()).hexdigest()[:40]


_versions = cache(versions)


def _code(detector: Detector) -> list[str]:
    """Hashes of the files that define the detector and its parts: a formula may change."""
    return sorted({_hash(type(m).__module__) for m in detector.modules()})


@cache
def _hash(module: str) -> str:
    file = getattr(sys.modules.get(module), "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] if file else module


class Chosen(NamedTuple):
    """The images of a batch on which the attack itself is examined."""

    controls: Tensor  # their places
    few: Tensor  # the places of those with the expensive measurements
    starts: Tensor  # for each of the few, an image of the other side


@dataclass(frozen=True)
class SetAttack:
    """The attack on one detector with the images of one set, within one threat."""

    detector: Detector
    images: ImageSet
    role: Role
    attack: Attack
    threat: Threat
    purpose: tuple[str, ...]  # what the random starts depend on, besides the image itself
    seed: int
    batch_size: int
    enough: float = math.inf  # in the goal's direction: an image beyond it stops
    exemplars: ImageSet | None = None  # in-distribution images whose features OOD images may match
    # only at the largest budget of a norm, where the attack is examined further
    other_side: ImageSet | None = None
    start: int = 0  # of the images, those from here ...
    stop: int | None = None  # ... to here are attacked; None: to the last
    keep: bool = False  # whether all attacked images are returned, in 8 bits

    @property
    def direction(self) -> str:
        """OOD images try to look in, ID images to look out."""
        return "look_out" if self.role == "inside" else "look_in"

    def run(self) -> Iterator[tuple[Arrays, Arrays]]:
        """Batch by batch: scores and probes of every image, and a few images for the page."""
        goal = replace(self._goal(), enough=self.enough)
        controls = torch.tensor(spaced(len(self.images), CONTROLS))
        few = controls[spaced(len(controls), FEW)]
        starts = self._starts(len(few))

        def part(start: int, end: int) -> tuple[Arrays, Arrays]:
            here, there = ((c >= start) & (c < end) for c in (controls, few))
            chosen = Chosen(controls[here] - start, few[there] - start, starts[there])
            x = _pixels(self.images, start, end, self.detector.model.mean)
            return self._batch(goal, x, chosen, start)

        stop = len(self.images) if self.stop is None else self.stop
        return in_parts(self.start, stop, self.batch_size, part)

    def _goal(self) -> Goal:
        if self.role == "inside":
            return look_out(self.detector)
        like = self.detector.model.mean
        known = None if self.exemplars is None else self.exemplars.thin(EXEMPLARS).pixels().to(like)
        return look_in(self.detector, known)

    def _starts(self, n: int) -> Images:
        """Images of the other side, for the few that are examined further."""
        if self.other_side is None:
            return torch.empty(n, *self.images.shape)
        places = torch.tensor(spaced(len(self.other_side), n))
        return self.other_side.take(places[torch.arange(n) % len(places)]).pixels()

    def _batch(self, goal: Goal, x: Images, chosen: Chosen, start: int) -> tuple[Arrays, Arrays]:
        draws = partial(generator, self.seed, *self.purpose)
        exam = Examination(self.detector, goal, self.attack, self.threat, draws)
        before = exam.score(x)
        attacked, direct = self._strongest(goal, x)
        # what the attack reports is not trusted: its images are scored again
        alone = exam.score(attacked)
        best = Best(x)
        best.offer(attacked, self._sign * alone)
        some, few, starts = (v.to(x.device) for v in chosen)
        facts = {
            "before": before,
            "alone": alone,
            "direct": self._sign * direct,
            "control_before": before[some],
            "control_after": alone[some],
            **exam.gradient(x, attacked, some),
            **exam.way_back(x[some], attacked[some]),
            **self._kept(best, x, some, exam.usual(x[some])),
        }
        if self.other_side is not None:
            examined = exam.further(x[few], attacked[few], starts.to(x))
            facts |= {"few_after": alone[few], **self._kept(best, x, few, examined)}
        every = torch.arange(len(x), device=x.device)
        rounded = self._kept(best, x, every, exam.rounded(x, best.x))["rounded"]
        facts |= {"rounded": rounded[some], "control_best": self._sign * best.value[some]}
        facts |= {"later": exam.score(x), "left": (~self.threat.contains(best.x, x)).byte()}
        scores = self._sign * best.value
        arrays = {"scores": scores} | facts | self._settings(goal, scores)
        if self.keep:
            arrays |= self._eight_bit(exam, x, best)
        every_look = {"original": x, "attacked": best.x, "before": before, "after": scores}
        return _numpy(arrays), self._looks(_numpy(every_look), start)

    def _eight_bit(self, exam: Examination, x: Images, best: Best) -> dict[str, Tensor]:
        """The images as 8 bits hold them, and their scores; never worse than without an attack."""
        if not bool(on_the_grid(x).all()):
            raise InputError(
                f"expected images of whole levels n/255 in {self.images.name!r} to keep the "
                "attacked ones in 8 bits, got others: give uint8 images, or no receipt"
            )
        kept = Best(x)
        kept.offer(x, self._sign * exam.score(x))
        found = to_8_bit(best.x, x, self.threat)
        kept.offer(found, self._sign * exam.score(found))
        levels = (LEVELS * kept.x).round().byte()
        return {KEPT + "images": levels, KEPT + "scores": self._sign * kept.value}

    def _looks(self, every: Arrays, start: int) -> Arrays:
        """The images of a batch that the page may show, with their places in the set."""
        places = np.arange(start, start + len(every["before"]))
        labels = self.images.label_numbers()[places]
        return joined(every | {"labels": labels, "places": places}, self._sign)

    @property
    def _sign(self) -> int:
        return 1 if self.role == "inside" else -1

    def _kept(self, best: Best, x: Images, places: Tensor, examined: Examined) -> dict[str, Tensor]:
        """Keep what an examination found where it is better and allowed; the measurements."""
        for name, images in examined.images.items():
            value = torch.full_like(best.value, -torch.inf)
            inside = self.threat.contains(images, x[places])
            value[places[inside]] = self._sign * examined.arrays[name][inside]
            best.offer(best.x.index_copy(0, places, images), value)
        return examined.arrays

    def _settings(self, goal: Goal, like: Scores) -> dict[str, Tensor]:
        """What the attack was, for the checks, which see arrays only."""
        return {
            "sign": torch.full_like(like, self._sign).char(),
            "enough": torch.full_like(like, self.enough),
            "stochastic": torch.full_like(like, goal.stochastic).byte(),
            "tier": torch.full_like(like, tier(self.attack)).byte(),
        }

    def _strongest(self, goal: Goal, x: Images) -> tuple[Images, Scores]:
        """The best images for the goal and its variants, and the value the goal alone reached."""
        if isinstance(self.attack, WorstOf):
            return self._worst(self.attack, goal, x)
        best, reached = Best(x), []
        for i, wanted in enumerate(self.attack.aims(goal)):
            found = self._climbed(wanted, x, ("variant", i - 1) if i else ())
            with torch.no_grad():
                reached.append(goal(found))
            best.offer(found, reached[-1])
        return best.x, reached[0]

    def _climbed(self, goal: Goal, x: Images, variant: tuple[str | int, ...]) -> Images:
        # a fresh one per batch: each image's noise depends on its pixels, not on its batch
        draws = partial(generator, self.seed, *self.purpose, *variant)
        try:
            return self.attack(goal, x, self.threat, draws())
        except CapabilityError:
            if not self.attack.uses_gradient:
                raise
        best = Best(x)
        for blind in (RandomSearch(), Square()):  # `zero_gradient` says that there is none
            found = blind(goal, x, self.threat, draws(type(blind).__name__))
            with torch.no_grad():
                best.offer(found, goal(found))
        return best.x

    def _worst(self, attack: WorstOf, goal: Goal, x: Images) -> tuple[Images, Scores]:
        """The same for an attack that tries the variants itself."""
        goal = attack.prepared(goal, x)
        with torch.no_grad():
            direct = goal(x)
        noise = Noise(x, generator(self.seed, *self.purpose))
        begin = worst_origin(goal, x, self.threat)
        for reached in attack.stages(goal, begin, self.threat.local, noise):
            if reached.stage.climbs == "own":
                direct = torch.maximum(direct, reached.value)
        return reached.best.x, direct


def score_clean(
    detectors: Mapping[str, Detector], images: ImageSet, batch_size: int
) -> Iterator[Arrays]:
    """Scores of every detector, batch by batch, all output-based ones from one forward pass.

    Those of a detector that is declared stochastic are means over several passes.
    """
    like = next(iter(detectors.values())).model.mean  # its device and its precision

    varying = {name: d for name, d in detectors.items() if look_in(d).stochastic}

    def part(start: int, end: int) -> Arrays:
        x = _pixels(images, start, end, like)
        with torch.no_grad():
            found = score_all(detectors, x)
            calls = [score_all(varying, x) for _ in range(DRAWS - 1)] if varying else []
        means = {n: torch.stack([found[n], *(c[n] for c in calls)]).mean(dim=0) for n in varying}
        return _numpy(found | means)

    return in_parts(0, len(images), batch_size, part)


def classes(model: Model, images: ImageSet, batch_size: int) -> Iterator[Arrays]:
    """The class that the network predicts for each image, batch by batch."""

    def part(start: int, end: int) -> Arrays:
        with torch.no_grad():
            z = model(_pixels(images, start, end, model.mean)).logits
        return _numpy({"class": z.argmax(dim=1)})

    return in_parts(0, len(images), batch_size, part)


def accuracy(model: Model, images: ImageSet, batch_size: int) -> tuple[float, int]:
    """Share of the labelled images that the network gets right, and how many have a label."""
    if images.labels is None or not bool((images.labels >= 0).any()):
        return 0.0, 0
    right, _ = right_ones(images, join(list(classes(model, images, batch_size)))["class"])
    return float(right.mean()), right.size


def right_ones(
    images: ImageSet, given: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.int64] | None]:
    """Which of the labelled images have the right predicted class, and their groups."""
    labels, groups = images.label_numbers(), images.group_numbers()
    labelled = labels >= 0
    return (given == labels)[labelled], None if groups is None else groups[labelled]


@dataclass
class Cost:
    """Images passed through the network, and the time it took."""

    forwards: int = 0
    backwards: int = 0
    seconds: float = 0.0


@contextmanager
def metered(model: Model) -> Iterator[Cost]:
    """Count every pass through `model` while the block runs."""
    cost = Cost()
    start = perf_counter()

    def passed(_: Model, __: tuple[object, ...], out: Outputs) -> None:
        n = len(out.features)
        cost.forwards += n
        if out.features.requires_grad:  # whatever the score uses, its gradient comes by here

            def returned(_: Tensor) -> None:
                cost.backwards += n

            out.features.register_hook(returned)

    handle = model.register_forward_hook(passed)
    try:
        yield cost
    finally:
        handle.remove()
        cost.seconds = perf_counter() - start


@contextmanager
def ticking(model: Model, tick: Tick | None) -> Iterator[None]:
    """Tell `tick` of the work that passes through `model` are, while the block runs."""
    if tick is None:
        yield
        return
    done = 0.0

    def passed(_: Model, __: tuple[object, ...], out: Outputs) -> None:
        nonlocal done
        done += work(len(out.features), gradient=out.features.requires_grad)
        tick(done)

    handle = model.register_forward_hook(passed)
    try:
        yield
    finally:
        handle.remove()


def join(parts: list[Arrays]) -> Arrays:
    """Concatenate the batches of a task, or the tasks of a set."""
    return {k: np.concatenate([p[k] for p in parts]) for k in parts[0]}


def _pixels(images: ImageSet, start: int, end: int, like: Tensor) -> Images:
    """Some of the images, on the device and in the precision of `like`."""
    return images.take(torch.arange(start, end)).pixels().to(like)


def _numpy(tensors: dict[str, Tensor]) -> Arrays:
    return {k: v.detach().cpu().contiguous().numpy() for k, v in tensors.items()}
