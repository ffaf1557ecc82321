"""What a check of a setup is, what it looks at, and what it finds."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.stats import binom
from torch import Tensor

from rood.attacks.base import Attack
from rood.attacks.worst_of import WorstOf
from rood.data.base import ImageSet, at_once
from rood.detectors.base import Detector
from rood.evaluation.batching import in_parts
from rood.evaluation.open_set import OpenSet
from rood.evaluation.tasks import right_ones
from rood.models.model import Model
from rood.shapes import Images
from rood.threat import Threat

Status = Literal["ok", "warn", "fail"]
Right = NDArray[np.bool_]  # which images the network gets right

IMAGES = 200  # of a set that the network sees, evenly spaced
FEW = 64  # of these, where it sees them several times
GAIN = 0.1  # in accuracy, above which another reading of the images is better ...
LEVEL = 1e-3  # ... if chance alone gives that rarely


@dataclass(frozen=True)
class Diagnosis:
    """What one check has found."""

    check: str
    status: Status
    found: str
    do: str = ""  # what to do about it
    about: str = ""  # the network or the image set; "": all of them

    def sentence(self) -> str:
        """All of it in one line."""
        about, do = f"{self.about}: " if self.about else "", f": {self.do}" if self.do else ""
        return f"{about}{self.found}{do}"


@dataclass(frozen=True)
class Subject:
    """A network that is looked at, with ID images for it."""

    name: str
    model: Model
    images: ImageSet
    card: Mapping[str, Any] = field(default_factory=dict)  # what its source says of it

    @cached_property
    def some(self) -> ImageSet:
        """Some of the ID images, those with a label if there are any."""
        y = self.images.labels
        known = self.images if y is None or not bool((y >= 0).any()) else self.images.take(y >= 0)
        return known.thin(IMAGES)

    @property
    def labelled(self) -> bool:
        """Whether accuracy can be measured."""
        y = self.some.labels
        return y is not None and bool((y >= 0).any())

    @cached_property
    def logits(self) -> Float[Tensor, "n k"]:
        """What the network returns for them."""
        return self.outputs(self.some)

    @cached_property
    def right(self) -> Right:
        """Which of them the network gets right."""
        return self.right_of(self.some, self.logits)

    def right_of(self, images: ImageSet, logits: Float[Tensor, "n k"]) -> Right:
        """Which labelled images have the right predicted class."""
        return right_ones(images, logits.argmax(dim=1).numpy())[0]

    @torch.no_grad()
    def outputs(
        self, images: ImageSet, seen: Callable[[Images], Images] = lambda x: x
    ) -> Float[Tensor, "n k"]:
        """Logits of images, which `seen` may change first."""

        def part(start: int, end: int) -> Tensor:
            x = images.take(torch.arange(start, end)).pixels().to(self.model.mean)
            return self.model(seen(x)).logits.double().cpu()

        return torch.cat(list(in_parts(0, len(images), at_once(images.shape), part)))


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Networks, images and detectors as an audit is going to use them."""

    subjects: Sequence[Subject]
    inside: ImageSet  # ID images for the tests
    outside: Mapping[str, ImageSet] = field(default_factory=dict)
    open_set: OpenSet | None = None  # the classes held out, which are an OOD set
    fit: ImageSet | None = None  # what detectors are fitted on; None: they have been
    calibrate: ImageSet | None = None
    # by network name, then by detector name; not fitted yet where there are images to fit them on
    detectors: Mapping[str, Mapping[str, Detector]] = field(default_factory=dict)
    threats: Sequence[Threat] = ()
    attack: Attack = field(default_factory=lambda: WorstOf(tier="quick"))
    limit: int | None = None  # images per set that are attacked

    @property
    def ours(self) -> list[ImageSet]:
        """All ID images."""
        return [part for part in (self.fit, self.calibrate, self.inside) if part is not None]


class SetupCheck(ABC):
    """One check of a setup. The docstring of a subclass says what it asks."""

    place: ClassVar[int] = 100  # among the others
    estimates: ClassVar[bool] = False  # only says what an audit will cost: an audit skips it

    @property
    def name(self) -> str:
        """The registry name: that of the file."""
        return type(self).__module__.rpartition(".")[2]

    @abstractmethod
    def look(self, setup: Setup) -> Iterator[Diagnosis]:
        """What it finds, one result for each thing that it looks at."""

    def ok(self, found: str, about: str = "") -> Diagnosis:
        """Nothing is wrong."""
        return Diagnosis(self.name, "ok", found, about=about)

    def warn(self, found: str, do: str, about: str = "") -> Diagnosis:
        """The audit goes on with a note."""
        return Diagnosis(self.name, "warn", found, do, about)

    def fail(self, found: str, do: str, about: str = "") -> Diagnosis:
        """The audit stops."""
        return Diagnosis(self.name, "fail", found, do, about)


class NetworkCheck(SetupCheck):
    """A check of each network by itself."""

    def look(self, setup: Setup) -> Iterator[Diagnosis]:
        for subject in setup.subjects:
            yield from self.look_at(subject, setup)

    @abstractmethod
    def look_at(self, subject: Subject, setup: Setup) -> Iterator[Diagnosis]:
        """What it finds of one network."""


def surely_better(new: Right, old: Right, tries: int = 1) -> bool:
    """Whether another reading gets more of the same images right, by a sign test.

    tries: how many other readings were tried.
    """
    won, lost = int((new & ~old).sum()), int((old & ~new).sum())
    by_chance = tries * float(binom.sf(won - 1, won + lost, 0.5))
    return float(new.mean() - old.mean()) >= GAIN and by_chance < LEVEL


def percent(values: Right | Float[Tensor, " n"]) -> str:
    """A share as text."""
    return f"{float(values.mean()):.2f}"
