"""The pieces of work of an audit: scoring one image set, attacking one image set.

Each reads only its arguments and returns arrays, so that it can run anywhere and again.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rood.attacks.base import Attack, Best, Goal
from rood.attacks.worst_of import WorstOf
from rood.data.base import ImageSet, spaced
from rood.detectors import score_all
from rood.detectors.base import Detector
from rood.evaluation.batching import in_parts
from rood.evaluation.probes import CONTROLS, FEW, Examination
from rood.goals import look_in, look_out
from rood.models.model import Model
from rood.seeds import Noise, generator
from rood.shapes import Images, Scores
from rood.threat import Threat

Role = Literal["inside", "outside"]
Arrays = dict[str, NDArray[Any]]

EXEMPLARS = 200  # in-distribution images, of which the most confident of each class are aimed at
EXAMPLES = 6  # attacked images kept to be looked at


def score_clean(
    detectors: Mapping[str, Detector], images: ImageSet, batch_size: int
) -> Iterator[Arrays]:
    """Scores of every detector, batch by batch, all output-based ones from one forward pass."""
    like = next(iter(detectors.values())).model.mean  # its device and its precision

    def part(start: int, end: int) -> Arrays:
        with torch.no_grad():
            return _numpy(score_all(detectors, _pixels(images, start, end, like)))

    return in_parts(0, len(images), batch_size, part)


def classes(model: Model, images: ImageSet, batch_size: int) -> Iterator[Arrays]:
    """The class that the network gives each image, batch by batch."""

    def part(start: int, end: int) -> Arrays:
        with torch.no_grad():
            z = model(_pixels(images, start, end, model.mean)).logits
        return _numpy({"class": z.argmax(dim=1)})

    return in_parts(0, len(images), batch_size, part)


def accuracy(model: Model, images: ImageSet, batch_size: int) -> tuple[float, int]:
    """Share of the labelled images that the network gets right, and how many have a label."""
    if images.labels is None or not bool((images.labels >= 0).any()):
        return 0.0, 0
    return share_right(images, join(list(classes(model, images, batch_size)))["class"])


def share_right(images: ImageSet, given: NDArray[np.int64]) -> tuple[float, int]:
    """The same from the classes that the network gave."""
    labels = np.full(len(images), -1) if images.labels is None else images.labels.numpy()
    labelled = int((labels >= 0).sum())
    return (int((given == labels).sum()) / labelled if labelled else 0.0), labelled


class Chosen(NamedTuple):
    """On which images of a batch the attack itself is examined."""

    controls: Tensor  # their places
    few: Tensor  # the places of those that are examined further
    starts: Tensor  # for each of the few, an image of the other side


@dataclass(frozen=True)
class AttackUnit:
    """One detector, one image set, one threat: every image moved to where the attacker wants it."""

    detector: Detector
    images: ImageSet
    role: Role
    attack: Attack
    threat: Threat
    purpose: tuple[str, ...]  # what the random starts depend on, besides the image itself
    seed: int
    batch_size: int
    enough: float = math.inf  # in the goal's direction: an image beyond it is done
    exemplars: ImageSet | None = None  # in-distribution images whose features OOD images may match
    # of the other side; given once for a set and a norm, where the attack is examined further
    other_side: ImageSet | None = None
    start: int = 0  # of the images, those from here ...
    stop: int | None = None  # ... to here are attacked; None: to the last

    @property
    def direction(self) -> str:
        """OOD images try to look in, in-distribution images to look out."""
        return "look_out" if self.role == "inside" else "look_in"

    def run(self) -> Iterator[tuple[Arrays, Arrays]]:
        """Batch by batch: what is known of every image, and a few images to look at."""
        goal = replace(self._goal(), enough=self.enough)
        controls = torch.tensor(spaced(len(self.images), CONTROLS))
        few = controls[spaced(len(controls), FEW)]
        starts = self._starts(len(few))

        def part(start: int, end: int) -> tuple[Arrays, Arrays]:
            here, there = ((c >= start) & (c < end) for c in (controls, few))
            chosen = Chosen(controls[here] - start, few[there] - start, starts[there])
            x = _pixels(self.images, start, end, self.detector.model.mean)
            return self._batch(goal, x, chosen, EXAMPLES - start)

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

    def _batch(self, goal: Goal, x: Images, chosen: Chosen, examples: int) -> tuple[Arrays, Arrays]:
        found, direct = self._strongest(goal, x)
        sign = 1 if self.role == "inside" else -1
        with torch.no_grad():
            # the attack's own word is not taken: what it returned is measured again
            after, before = self.detector.score(found), self.detector.score(x)
            left = ~self.threat.contains(found, x)
        draws = partial(generator, self.seed, *self.purpose)
        examination = Examination(self.detector, goal, self.attack, self.threat, draws)
        some, few, starts = (v.to(x.device) for v in chosen)
        facts = {
            "scores": after,
            "before": before,
            "direct": sign * direct,
            "left": left.byte(),
            "sign": torch.full_like(after, sign).char(),
            "enough": torch.full_like(after, self.enough),
            "control_before": before[some],
            "control_after": after[some],
            **examination.gradient(x, some),
            **examination.usual(x[some], found[some]),
        }
        if self.other_side is not None:
            facts |= {"few_after": after[few]}
            facts |= examination.further(x[few], found[few], starts.to(x))
        look = slice(0, max(0, examples))
        looks = {"original": x[look], "attacked": found[look], "before": before[look]}
        return _numpy(facts), _numpy(looks | {"after": after[look]})

    def _strongest(self, goal: Goal, x: Images) -> tuple[Images, Scores]:
        """The best of what is found for the goal and its variants; what the goal alone led to."""
        if isinstance(self.attack, WorstOf):
            return self._worst(self.attack, goal, x)
        best, reached = Best(x), []
        for i, wanted in enumerate(self.attack.aims(goal)):
            # fresh ones for a batch: each image's noise depends on its pixels, not on its batch
            variant = ("variant", i - 1) if i else ()
            g = generator(self.seed, *self.purpose, *variant)
            found = self.attack(wanted, x, self.threat, g)
            with torch.no_grad():
                reached.append(goal(found))
            best.offer(found, reached[-1])
        return best.x, reached[0]

    def _worst(self, attack: WorstOf, goal: Goal, x: Images) -> tuple[Images, Scores]:
        """The same for an attack that tries the variants by itself."""
        goal = attack.prepared(goal, x)
        with torch.no_grad():
            direct = goal(x)
        noise = Noise(x, generator(self.seed, *self.purpose))
        for reached in attack.stages(goal, x, self.threat, noise):
            if reached.stage.climbs == "own":
                direct = torch.maximum(direct, reached.value)
        return reached.best.x, direct


def join(parts: list[Arrays]) -> Arrays:
    """The batches of one unit, end to end."""
    return {k: np.concatenate([p[k] for p in parts]) for k in parts[0]}


def _pixels(images: ImageSet, start: int, end: int, like: Tensor) -> Images:
    """Some of the images, on the device and in the precision of `like`."""
    return images.take(torch.arange(start, end)).pixels().to(like)


def _numpy(tensors: dict[str, Tensor]) -> Arrays:
    return {k: v.detach().cpu().contiguous().numpy() for k, v in tensors.items()}
