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
from rood.data.base import ImageSet, spaced
from rood.detectors import score_all
from rood.detectors.base import Detector
from rood.goals import look_in, look_out
from rood.models.model import Model
from rood.seeds import generator
from rood.shapes import Images
from rood.threat import L2, Threat

Role = Literal["inside", "outside"]
Arrays = dict[str, NDArray[Any]]

CONTROLS = 32  # images, evenly spaced, on which the attack itself is examined
NUDGE = 1e-4  # of a pixel: the step over which the slope is measured
QUERIES = 50  # of blind search, an image
EXAMPLES = 6  # attacked images kept to be looked at


def score_clean(
    detectors: Mapping[str, Detector], images: ImageSet, batch_size: int
) -> Iterator[Arrays]:
    """Scores of every detector, batch by batch, all output-based ones from one forward pass."""
    like = next(iter(detectors.values())).model.mean  # its device and its precision
    for x, _ in images.batches(batch_size):
        with torch.no_grad():
            scores = score_all(detectors, x.to(like))
        yield _numpy(scores)


def accuracy(model: Model, images: ImageSet, batch_size: int) -> tuple[float, int]:
    """Share of the labelled images that the network gets right, and how many have a label."""
    labelled = 0 if images.labels is None else int((images.labels >= 0).sum())
    if labelled == 0:
        return 0.0, 0
    right = 0
    for x, y in images.batches(batch_size):
        with torch.no_grad():
            z = model(x.to(model.mean)).logits
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
        controls = torch.tensor(spaced(len(self.images), CONTROLS))
        done = 0
        for x, _ in self.images.batches(self.batch_size):
            here = controls[(controls >= done) & (controls < done + len(x))] - done
            yield self._batch(goal, x.to(self.detector.model.mean), here, EXAMPLES - done)
            done += len(x)

    def _batch(
        self, goal: Goal, x: Images, controls: Tensor, examples: int
    ) -> tuple[Arrays, Arrays]:
        found = self._strongest(goal, x)
        with torch.no_grad():
            # the attack's own word is not taken: what it returned is measured again
            after, before = self.detector.score(found), self.detector.score(x)
            left = ~self.threat.contains(found, x)
        some = controls.to(x.device)
        facts = {
            "scores": after,
            "before": before,
            "left": left.byte(),
            "sign": torch.full_like(after, 1 if self.role == "inside" else -1).char(),
            "control": self._blind(goal, x[some]),
            "control_before": before[some],
            "control_after": after[some],
            **self._gradient(goal, x, some),
        }
        few = slice(0, max(0, examples))
        looks = {"original": x[few], "attacked": found[few], "before": before[few]}
        return _numpy(facts), _numpy(looks | {"after": after[few]})

    def _strongest(self, goal: Goal, x: Images) -> Images:
        """The best for the goal of what the attack finds for it and for each of its variants."""
        # a fresh generator a batch: each image's noise depends on its pixels, not on its batch
        found = self.attack(goal, x, self.threat, generator(self.seed, *self.purpose))
        for i, variant in enumerate(goal.variants if self.attack.uses_gradient else ()):
            g = generator(self.seed, *self.purpose, "variant", i)
            other = self.attack(variant, x, self.threat, g)
            with torch.no_grad():
                better = goal(other) > goal(found)
            found = torch.where(better.view(-1, 1, 1, 1), other, found)
        return found

    def _gradient(self, goal: Goal, x: Images, some: Tensor) -> dict[str, Tensor]:
        """Where the gradient is dead, and how true it is: slope measured over slope promised."""
        if not self.attack.uses_gradient:
            return {"zero_gradient": torch.zeros(len(x)).byte(), "honesty": torch.ones(len(some))}
        _, gradient = value_and_gradient(goal, x)
        dead = (gradient.flatten(1) == 0).all(dim=1)
        at, along = x[some], L2(1.0).ascent(gradient[some])
        promised = (gradient[some] * along).flatten(1).sum(dim=1)
        h = NUDGE * x[0].numel() ** 0.5
        with torch.no_grad():
            measured = (goal(at + h * along) - goal(at - h * along)) / (2 * h)
        true = torch.where(dead[some], torch.ones_like(promised), measured / promised)
        return {"zero_gradient": dead.byte(), "honesty": true}

    def _blind(self, goal: Goal, x: Images) -> Tensor:
        """Scores that blind search reaches."""
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
