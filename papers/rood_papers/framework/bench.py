"""One network in one world: images, fitted detectors, scores and attacked images, each made once.

A paper declares its worlds and subclasses `Bench` to say which detectors it fits; `System` is one
fitted detector with the clean images of both sides.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeVar

import torch

from rood.attacks import APGD, Attack, WorstOf
from rood.data.base import ImageSet
from rood.detectors import Detector
from rood.evaluation.attacked import Attacked, attacked_scores
from rood.shapes import Images, Labels, Scores
from rood.threat import Threat
from rood_papers.framework.context import Context, in_batches

T = TypeVar("T")
Detectors = dict[str, Detector]
ScoresBySet = dict[str, dict[str, Scores]]  # by image set, then by detector


@dataclass(frozen=True)
class World:
    """An ID set and the OOD sets that a paper holds against it, all by name."""

    name: str  # its networks are NAME/ROLE, its images NAME/fit, NAME/test, ...
    far: tuple[str, ...]
    near: tuple[str, ...] = ()
    tuning: str = "tiny-imagenet/tuning"  # outliers on which options are chosen
    level: float = 1 / 255  # one unit of the budget
    roles: Mapping[str, str] = field(default_factory=dict)  # of networks, by the paper's name

    @property
    def outside(self) -> tuple[str, ...]:
        return (*self.near, *self.far)


DIGITS = World(  # shipped: stands in where no image of a paper can be read
    "digits",
    ("digits/patches", "digits/noise"),
    ("digits/near",),
    "digits/tuning",
    0.1,
    {"default": "ce", "robust": "aloe"},
)


class Bench:
    """One network in one world; what is fitted, scored or attacked is kept in the context."""

    judged = "test"  # the part of the ID images that cells are about

    def __init__(self, context: Context, world: World, role: str) -> None:
        self.context, self.world, self.role = context, world, role
        self.network = context.network(f"{world.name}/{role}")
        self.model = self.network.model

    @property
    def inside(self) -> str:
        """The name of the ID images."""
        return f"{self.world.name}/{self.judged}"

    def count(self, name: str) -> int | None:
        """How many images of a set are judged; None: as many as the size says."""
        return None

    def images(self, name: str, limit: int | None) -> ImageSet:
        """At most `limit` images of a set, in the network's size."""
        return self.context.images(name, shape=self.network.shape, limit=limit)

    def pixels(self, name: str, limit: int | None = None) -> Images:
        """`limit` images of a set on the device; None: as many as `count` says."""
        n = limit or self.count(name)
        key = ("pixels", type(self), self.world.name, self.network.shape, name, n)
        return self.context.remember(key, lambda: self.images(name, n).pixels(self.context.device))

    def labels(self) -> Labels:
        """The classes of the ID images."""
        y = self.context.images(self.inside).labels
        assert y is not None
        return y.long().to(self.context.device)

    def fit(self) -> Detectors:
        """The paper's detectors on this network, fitted; use `detectors`, which fits once."""
        raise NotImplementedError

    def detectors(self) -> Detectors:
        """Every fitted detector by name."""
        return self.once("detectors", self.fit)

    def scores(self) -> ScoresBySet:
        """Clean scores of all sets."""
        names = (self.inside, *self.world.outside)
        return self.once("scores", lambda: self.scores_of({n: self.pixels(n) for n in names}))

    def scores_of(self, sets: Mapping[str, Images]) -> ScoresBySet:
        """Scores of these images by every detector."""
        return {n: self.context.scores(self.detectors(), x) for n, x in sets.items()}

    def once(self, what: object, make: Callable[[], T]) -> T:
        """What `make` gives, computed once per kind of bench, world and network."""
        return self.context.remember((type(self), self.world.name, self.role, what), make)


@dataclass(frozen=True, eq=False)
class System:
    """A fitted detector, clean images of both sides as its attacker has them, and their scores."""

    detector: Detector
    inside: Images
    outside: Images
    clean_in: Scores  # on the CPU
    clean_out: Scores
    network: str

    @classmethod
    @torch.no_grad()
    def scored(
        cls, detector: Detector, inside: Images, outside: Images, network: str, **more: Any
    ) -> Self:
        """The system with its clean scores."""
        clean = [in_batches(detector.score, x).cpu() for x in (inside, outside)]
        return cls(detector, inside, outside, clean[0], clean[1], network, **more)

    def lowered(self, context: Context, threat: Threat, purpose: str) -> Attacked:
        """The first OOD images, attacked to be missed; ID images are not attacked."""
        return attacked_scores(
            self.detector,
            self.outside[: context.size.standard],
            "outside",
            threat,
            WorstOf(tier="quick" if context.size.tiny else "standard"),
            past=self.clean_in,
            seed=context.seed,
            purpose=(purpose, "standard"),
        )


def judged(
    context: Context,
    detector: Detector,
    inside: Images,
    outside: Mapping[str, Images],
    threat: Threat,
    purpose: Sequence[str],
) -> tuple[dict[str, Scores], dict[str, Scores]]:
    """Scores before and after an attack on both sides, by set; "inside" are the ID images.

    All OOD sets are attacked together, until each image has passed every clean ID image.
    """
    system = System.scored(detector, inside, torch.cat([*outside.values()]), "")
    # a few steps at tiny: they show that everything runs
    suite: Attack = APGD(steps=3) if context.size.tiny else WorstOf()

    def attacked(x: Images, side: Literal["inside", "outside"], past: Scores) -> Scores:
        draws = ("standard", *purpose, side)
        return attacked_scores(
            detector, x, side, threat, suite, past=past, seed=context.seed, purpose=draws
        ).scores.cpu()

    def by_set(s_in: Scores, s_out: Scores) -> dict[str, Scores]:
        parts = s_out.split([len(x) for x in outside.values()])
        return {"inside": s_in, **dict(zip(outside, parts, strict=True))}

    found_in = attacked(inside, "inside", system.clean_out)
    found_out = attacked(system.outside, "outside", system.clean_in)
    return by_set(system.clean_in, system.clean_out), by_set(found_in, found_out)
