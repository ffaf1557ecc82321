"""The pieces of work of an audit: scoring one image set, attacking one image set.

Each reads only its arguments and returns arrays, so that it can run anywhere and again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rood.attacks.base import Attack, Goal, value_and_gradient
from rood.attacks.random_search import RandomSearch
from rood.data.base import ImageSet
from rood.detectors import score_all
from rood.detectors.base import Detector
from rood.goals import look_in, look_out
from rood.models.model import Model
from rood.seeds import generator
from rood.shapes import Images
from rood.threat import Threat

Role = Literal["inside", "outside"]
Arrays = dict[str, NDArray[Any]]

CONTROLS = 32  # images that blind search tries too
QUERIES = 50  # of blind search, an image
EXAMPLES = 6  # attacked images kept to be looked at


def score_clean(
    detectors: Mapping[str, Detector], images: ImageSet, batch_size: int
) -> Iterator[Arrays]:
    """Scores of every detector, batch by batch, all output-based ones from one forward pass."""
    device = next(iter(detectors.values())).model.mean.device
    for x, _ in images.batches(batch_size):
        with torch.no_grad():
            scores = score_all(detectors, x.to(device))
        yield _numpy(scores)


def accuracy(model: Model, images: ImageSet, batch_size: int) -> tuple[float, int]:
    """Share of the labelled images that the network gets right, and how many have a label."""
    labelled = 0 if images.labels is None else int((images.labels >= 0).sum())
    if labelled == 0:
        return 0.0, 0
    right = 0
    for x, y in images.batches(batch_size):
        with torch.no_grad():
            z = model(x.to(model.mean.device)).logits
        right += int((z.argmax(dim=1).cpu() == y).sum())
    return right / labelled, labelled


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

    @property
    def direction(self) -> str:
        """OOD images try to look in, in-distribution images to look out."""
        return "look_out" if self.role == "inside" else "look_in"

    def run(self) -> Iterator[tuple[Arrays, Arrays]]:
        """Batch by batch: what is known of every image, and a few images to look at."""
        goal = look_out(self.detector) if self.role == "inside" else look_in(self.detector)
        device = self.detector.model.mean.device
        done = 0
        for x, _ in self.images.batches(self.batch_size):
            yield self._batch(goal, x.to(device), done)
            done += len(x)

    def _batch(self, goal: Goal, x: Images, done: int) -> tuple[Arrays, Arrays]:
        # a fresh generator a batch: each image's noise depends on its pixels, not on its batch
        found = self.attack(goal, x, self.threat, generator(self.seed, *self.purpose))
        _, gradient = value_and_gradient(goal, x)
        with torch.no_grad():
            # the attack's own word is not taken: what it returned is measured again
            after, before = self.detector.score(found), self.detector.score(x)
            left = ~self.threat.contains(found, x)
        facts = {
            "scores": after,
            "before": before,
            "zero_gradient": (gradient.flatten(1) == 0).all(dim=1).byte(),
            "left": left.byte(),
            "direction": torch.full_like(after, 1 if self.role == "inside" else -1).char(),
            "control": self._control(goal, x[: max(0, CONTROLS - done)]),
        }
        few = slice(0, max(0, EXAMPLES - done))
        looks = {
            "original": x[few],
            "attacked": found[few],
            "before": before[few],
            "after": after[few],
        }
        return _numpy(facts), _numpy(looks)

    def _control(self, goal: Goal, x: Images) -> Tensor:
        """Scores that blind search reaches on the first images."""
        if len(x) == 0:
            return x.new_empty(0)
        g = generator(self.seed, *self.purpose, "control")
        found = RandomSearch(queries=QUERIES)(goal, x, self.threat, g)
        with torch.no_grad():
            return self.detector.score(found)


def join(parts: list[Arrays]) -> Arrays:
    """The batches of one unit, end to end."""
    return {k: np.concatenate([p[k] for p in parts]) for k in parts[0]}


def _numpy(tensors: dict[str, Tensor]) -> Arrays:
    return {k: v.detach().cpu().contiguous().numpy() for k, v in tensors.items()}
